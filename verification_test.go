package fencekit_test

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests that the documentation names are there.
func TestDocs_NameTestsThatExist(t *testing.T) {
	written := map[string]bool{}
	definition := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	require.NoError(t, fs.WalkDir(os.DirFS("."), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range definition.FindAllSubmatch(source, -1) {
			written[string(match[1])] = true
		}
		return err
	}))
	docs, err := os.ReadFile("docs/verification.md")
	require.NoError(t, err)
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(docs), -1)
	require.NotEmpty(t, named)
	for _, name := range named {
		require.True(t, written[name[1]], "docs/verification.md names %s, which is not there", name[1])
	}
}
