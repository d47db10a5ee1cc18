package fencekit_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

var (
	// citedID matches the ids of invariants, hazards, properties and variants, also
	// within the name of a test, and of hazards also with
	// a hyphen, which is wrong.
	citedID = regexp.MustCompile(`(?:^|[^A-Za-z0-9])(F\d|G\d{1,2}|L\d|N\d{1,2}|I\d{1,2}|M\d{1,2}[a-z]?|H-?[A-G]\d{1,2}|CG\d|S\d{1,2})(?:[^A-Za-z0-9]|$)`)
	// variantID matches what only the documentation and the model mean as ids.
	variantID = regexp.MustCompile(`(?:^|[^A-Za-z0-9])((?:P|B|A|AB|R|RB)\d{1,2}[a-z]?)(?:[^A-Za-z0-9]|$)`)
	// definition is a row of a table whose first cell is an id, or several.
	definition = regexp.MustCompile(`(?m)^\| ([A-Z]+\d+(?:, [A-Z]+\d+)*) \|`)
	variant    = regexp.MustCompile(`(?:row|holds|broken)\("(\w+)"`)
)

// notAnID look like ids.
var notAnID = map[string]string{
	"F0":  "a byte, escaped in a URL",
	"I0":  "a property that no checker has, in a test",
	"M52": "the beginning of a path in SVG, in a test",
}

// Every id that code, tests or documentation cite is defined in the documentation,
// or in the table of the model's variants.
func TestDocs_DefineEveryID(t *testing.T) {
	defined := map[string]bool{}
	for _, page := range []string{"docs/protocol.md", "docs/hazards.md", "chaos/README.md"} {
		for _, row := range definition.FindAllStringSubmatch(read(t, page), -1) {
			for id := range strings.SplitSeq(row[1], ", ") {
				defined[id] = true
			}
		}
	}
	variants, err := filepath.Glob("internal/model/variants_*.go")
	require.NoError(t, err)
	for _, file := range variants {
		for _, row := range variant.FindAllStringSubmatch(read(t, file), -1) {
			defined[row[1]] = true
		}
	}
	require.Greater(t, len(defined), 150)
	texts(t, func(path, text string) {
		ids := cited(citedID, text)
		if strings.HasPrefix(path, "docs/") || strings.HasPrefix(path, "internal/model/") {
			ids = append(ids, cited(variantID, text)...)
		}
		for _, id := range ids {
			if !defined[id] && notAnID[id] == "" {
				t.Errorf("%s cites %s, which neither docs/protocol.md, docs/hazards.md, chaos/README.md nor internal/model defines", path, id)
			}
		}
	})
}

// cited returns the ids in a text.
func cited(id *regexp.Regexp, text string) []string {
	var ids []string
	for word := range strings.FieldsFuncSeq(text, endsWord) {
		if !strings.ContainsAny(word, "0123456789") {
			continue // nearly all of the text, which the expression takes long to read
		}
		// Neighbours share the character between them.
		for at := id.FindStringSubmatchIndex(word); at != nil; at = id.FindStringSubmatchIndex(word) {
			ids = append(ids, word[at[2]:at[3]])
			word = word[at[3]:]
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// endsWord reports whether an r can't be within an id, nor between two of them that are
// joined by a hyphen.
func endsWord(r rune) bool { return r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }

// texts calls visit with every file of the repository that people write.
func texts(t *testing.T, visit func(path, text string)) {
	t.Helper()
	kinds := []string{".go", ".sql", ".md", ".yaml"}
	require.NoError(t, fs.WalkDir(os.DirFS("."), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "chaos-runs"}, path):
			return fs.SkipDir
		case !entry.IsDir() && (slices.Contains(kinds, filepath.Ext(path)) || path == "Makefile"):
			visit(path, read(t, path))
		}
		return nil
	}))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
