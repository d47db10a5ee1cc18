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

// Every hazard has tests, or the reason why it has none. None is left out of its
// section.
func TestDocs_NameEveryHazard(t *testing.T) {
	rows := map[string]int{}
	for _, row := range regexp.MustCompile(`(?m)^\| (N|H[A-G])(\d+) \|[^|]+\|[^|]+\|([^|]+)\|$`).FindAllStringSubmatch(read(t, "docs/hazards.md"), -1) {
		rows[row[1]]++
		require.Equal(t, strconv.Itoa(rows[row[1]]), row[2], "after the ones before it, %s%s is not the next", row[1], row[2])
		require.Regexp(t, "`Test\\w+`|not tested: |nothing to defend: ", row[3], row[1]+row[2])
	}
	require.Equal(t, map[string]int{"N": 28, "HA": 7, "HB": 21, "HC": 6, "HD": 18, "HE": 9, "HF": 5, "HG": 6}, rows)
}
