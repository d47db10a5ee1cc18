package fencectl

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// Each command line that a message or a page prints is one that fencectl takes: its flags and
// arguments are those of the command.
func TestPrintedCommands_AreTaken(t *testing.T) {
	t.Parallel()
	commands, bumps := printedCommands(t), 0
	for _, c := range commands {
		cmd, rest, err := newRoot().Find(c.args)
		if !assert.NoError(t, err, c) || cmd.HasSubCommands() {
			continue
		}
		if assert.NoError(t, cmd.ParseFlags(rest), c) {
			assert.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), c)
		}
		if cmd.CommandPath() == "fencectl epoch bump" { // which is meant to be copied
			bumps++
			assert.NoError(t, cmd.ValidateRequiredFlags(), c)
		}
	}
	require.Greater(t, len(commands), 50)
	require.Greater(t, bumps, 15)
}

// printedCommand is a command line of fencectl in a message or a page.
type printedCommand struct {
	file string
	args []string
}

// printedCommands returns the command lines in the module's messages and pages.
func printedCommands(t *testing.T) (all []printedCommand) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || entry.IsDir() && entry.Name() != "testdata" && entry.Name() != ".git":
			return err
		case entry.IsDir():
			return filepath.SkipDir
		}
		prose := strings.HasSuffix(path, ".md") && filepath.Base(path) != "operate.md" // which has remedies
		for _, text := range texts(t, path) {
			for _, args := range commandsIn(text, prose) {
				// A command may be named to speak of it. Messages and remedies that name a bump mean it to be run.
				if isBump := slices.Equal(args, []string{"epoch", "bump"}); !isName(args) || isBump && !prose {
					all = append(all, printedCommand{path, args})
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	return all
}

// isName reports whether words are a command's name, or that of one of its flags.
func isName(words []string) bool {
	last := len(words) - 1
	return !slices.ContainsFunc(words[:last], func(word string) bool { return !commandWord.MatchString(word) }) &&
		(commandWord.MatchString(words[last]) || strings.HasPrefix(words[last], "--"))
}

// texts returns a page, a statement or the findings as they are, and the texts in a file of Go.
func texts(t *testing.T, path string) (all []string) {
	t.Helper()
	switch {
	case strings.HasSuffix(path, ".md"), strings.HasSuffix(path, ".sql"), strings.HasSuffix(path, "findings.txt"), strings.HasSuffix(path, "help.txt"):
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return []string{strings.NewReplacer("  run   ", "", "{mode}", "audit", "{token}", "7").Replace(string(text))}
	case !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"):
		return nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			if text, ok := joinedText(e); ok {
				all = append(all, text)
				return false
			}
		}
		return true
	})
	return all
}

// joinedText returns the text of a literal or of a sum that has one.
func joinedText(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		left, isLeft := joinedText(e.X)
		right, isRight := joinedText(e.Y)
		return left + right, e.Op == token.ADD && (isLeft || isRight)
	}
	return "X", false
}

var (
	printed     = regexp.MustCompile("(?m)(^ *|: |[`\"(])fencectl ")
	ShellWord   = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
	shellMore   = regexp.MustCompile(` [#|>;&]`)
	commandWord = regexp.MustCompile(`^[a-z][a-z-]*$`)
)

// commandsIn returns the command lines in a text: a line by itself, what is in quotes or
// parentheses, and what follows a colon, where that isn't prose.
func commandsIn(text string, prose bool) (all [][]string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	for _, match := range printed.FindAllStringSubmatchIndex(text, -1) {
		before, line := text[match[2]:match[3]], text[match[1]:]
		end := map[string]string{"`": "`", `"`: `"`, "(": ")", ": ": ";`'"}[before]
		if before == ": " && prose {
			continue
		}
		line = line[:strings.IndexAny(line+end+"\n", end+"\n")]
		if more := shellMore.FindStringIndex(line); more != nil {
			line = line[:more[0]]
		}
		var words []string
		for _, word := range ShellWord.FindAllString(line, -1) {
			words = append(words, strings.Trim(word, `'"`))
		}
		all = append(all, words)
	}
	return all
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
