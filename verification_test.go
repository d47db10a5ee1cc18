package fencekit_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
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
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(`\b(Test[A-Z]\w+_\w+)`).FindAllStringSubmatch(string(text), -1) {
			if !written[name[1]] {
				t.Errorf("%s names %s, which is not there", page, name[1])
			}
		}
	}
}

// Every hazard of the sections that are about what is built here has a line, and
// each line a test, or a reason why not.
func TestDocs_NameEveryHazard(t *testing.T) {
	docs, err := os.ReadFile("docs/verification.md")
	require.NoError(t, err)
	for section, last := range map[string]int{"A": 7, "B": 21, "D": 17, "E": 8, "G": 5} {
		for i := range last {
			id := section + strconv.Itoa(i+1)
			line := regexp.MustCompile(`(?m)^\| ` + id + ` \|[^|]+\|([^|]+)\|$`).FindSubmatch(docs)
			require.NotNil(t, line, "docs/verification.md has no line for %s", id)
			require.Regexp(t, "`Test\\w+`|not tested: |not used: |nothing to defend: ", string(line[1]), id)
		}
	}
}
