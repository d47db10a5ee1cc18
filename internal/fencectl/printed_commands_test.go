package fencectl

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// printed matches a command line that a message or a page prints, up to the end of the quotes or the line.
var printed = regexp.MustCompile("(?m)(?:^ *|: |[`\"(])fencectl ([a-z][^`\n\")#|>;]*)")

// Each command that a message or a page prints is one of fencectl's, with flags that it has.
func TestPrintedCommands_AreThere(t *testing.T) {
	t.Parallel()
	found := 0
	require.NoError(t, filepath.WalkDir(filepath.Join("..", ".."), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".md", ".sql", ".txt"}, filepath.Ext(path)) {
			return err
		}
		text, err := os.ReadFile(path)
		for _, line := range printed.FindAllStringSubmatch(strings.ReplaceAll(strings.ReplaceAll(string(text), "\\\"", "\""), "\\\n", " "), -1) {
			words := strings.Fields(line[1])
			cmd, rest, err := newRoot().Find(words)
			if !assert.NoError(t, err, "%s: %s", path, line[1]) {
				continue
			}
			found++
			for _, word := range rest {
				if word == "--" {
					break
				}
				if name, is := strings.CutPrefix(word, "--"); is {
					name = strings.TrimRight(strings.SplitN(name, "=", 2)[0], "',.:")
					assert.NotNil(t, cmd.Flag(name), "%s: %s", path, line[1])
				}
			}
		}
		return err
	}))
	require.Greater(t, found, 100)
}

// The command lines of the manifests for Kubernetes are complete.
func TestManifests_CommandsAreTaken(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../deploy/kubernetes/base/*.yaml")
	require.NoError(t, err)
	found := 0
	for _, path := range files {
		file, err := os.Open(path)
		require.NoError(t, err)
		defer file.Close()
		for documents := yaml.NewDecoder(file); ; {
			var document any
			if err := documents.Decode(&document); errors.Is(err, io.EOF) {
				break
			} else {
				require.NoError(t, err, path)
			}
			for _, args := range argsOf(document, "ghcr.io/fencekit/fencectl") {
				found++
				cmd, rest, err := newRoot().Find(args)
				require.NoError(t, err, args)
				require.NoError(t, cmd.ParseFlags(rest), args)
				require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), args)
				require.NoError(t, cmd.ValidateRequiredFlags(), args)
				require.True(t, cmd.Runnable() && !cmd.HasSubCommands(), args)
			}
		}
	}
	require.Equal(t, 5, found)
}

// argsOf returns the arguments of the containers with an image.
func argsOf(node any, image string) (all [][]string) {
	switch node := node.(type) {
	case []any:
		for _, below := range node {
			all = append(all, argsOf(below, image)...)
		}
	case map[string]any:
		if node["image"] == image {
			var args []string
			for _, arg := range node["args"].([]any) {
				args = append(args, arg.(string))
			}
			all = append(all, args)
		}
		for _, below := range node {
			all = append(all, argsOf(below, image)...)
		}
	}
	return all
}
