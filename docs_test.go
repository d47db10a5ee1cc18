package fencekit_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	testName = regexp.MustCompile(`\bTest[A-Z]\w+`)
	bench    = regexp.MustCompile(`-bench '?\^?(\w+)`)
	target   = regexp.MustCompile("(?m)(?:`|^ +)make ([a-z]+(?:-[a-z]+)*)\\b")
	tested   = regexp.MustCompile(`\bgo (?:test|run) ([^` + "`" + `\n]+)`)
)

// What the pages lead to is there: pages, files, headings, tests, targets of make, packages.
// The commands of fencectl that they cite are checked in internal/fencectl.
func TestDocs_CiteWhatIsThere(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)\w+)\(`)
	texts(t, "_test.go", func(_, text string) {
		for _, found := range function.FindAllStringSubmatch(text, -1) {
			tests[found[1]] = true
		}
	})
	require.Greater(t, len(tests), 100)
	makefile := read(t, "Makefile")
	texts(t, ".md", func(path, text string) {
		for _, found := range link.FindAllStringSubmatch(withoutCode(text), -1) {
			checkLink(t, path, found[1])
		}
		if path == "CHANGELOG.md" {
			return // what these cite may have gone since
		}
		names := testName.FindAllString(text, -1)
		for _, found := range bench.FindAllStringSubmatch(text, -1) {
			names = append(names, "Benchmark"+found[1])
		}
		for _, name := range names {
			if !begins(tests, name) {
				t.Errorf("%s names %s, which is not there", path, name)
			}
		}
		for _, found := range target.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+found[1]+":") {
				t.Errorf("%s names make %s, which is not there", path, found[1])
			}
		}
		for _, found := range tested.FindAllStringSubmatch(text, -1) {
			for word := range strings.FieldsSeq(found[1]) {
				dir, ours := strings.CutPrefix(word, "./")
				if _, err := os.Stat(strings.TrimSuffix(dir, "/...")); ours && dir != "..." && err != nil {
					t.Errorf("%s names the package %s: %v", path, word, err)
				}
			}
		}
	})
}

// begins reports whether a test's name begins as a page says: a pattern of -run names several.
func begins(tests map[string]bool, name string) bool {
	for test := range tests {
		if strings.HasPrefix(test, name) {
			return true
		}
	}
	return false
}

func checkLink(t *testing.T, path, to string) {
	t.Helper()
	to, anchor, _ := strings.Cut(to, "#")
	if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") || strings.HasPrefix(to, "../../") && strings.Contains(to, "security/") {
		return
	}
	file := path
	if to != "" {
		file = filepath.Join(filepath.Dir(path), to)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("%s links to %s: %v", path, to, err)
	} else if anchor != "" && !anchors(read(t, file))[anchor] {
		t.Errorf("%s links to %s, and %s has no heading %q", path, to, file, anchor)
	}
}

// withoutCode removes blocks and spans of code, in which brackets are no links.
func withoutCode(text string) string {
	text = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, "")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllString(text, "")
}

// anchors are the names that GitHub gives to the headings of a page.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		name := strings.ToLower(regexp.MustCompile(`[^\w\s-]`).ReplaceAllString(h[1], ""))
		names[strings.ReplaceAll(strings.TrimSpace(name), " ", "-")] = true
	}
	return names
}

// texts calls visit with every file of the repository whose name ends in suffix.
func texts(t *testing.T, suffix string, visit func(path, text string)) {
	t.Helper()
	require.NoError(t, fs.WalkDir(os.DirFS("."), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "chaos-runs"}, path):
			return fs.SkipDir
		case !entry.IsDir() && strings.HasSuffix(path, suffix):
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

// The README shows code that is compiled and run: parts of the program of examples/quickstart. A block's
// paragraphs are there as they stand, but for their indentation.
func TestReadme_ShowsTheProgramThatRuns(t *testing.T) {
	readme, program := read(t, "README.md"), "\n"+read(t, "examples/quickstart/main.go")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readme, -1)
	require.Len(t, blocks, 1)
	for _, block := range blocks {
		for _, paragraph := range strings.Split(strings.TrimSpace(block[1]), "\n\n") {
			inside := "\n\t" + strings.ReplaceAll(paragraph, "\n", "\n\t") + "\n"
			require.True(t, strings.Contains(program, inside) || strings.Contains(program, "\n"+paragraph+"\n"),
				"not in examples/quickstart/main.go: %s", paragraph)
		}
	}
}

// go install with a version refuses a module that replaces another.
func TestDocs_TheCommandsCanBeInstalledByVersion(t *testing.T) {
	t.Parallel()
	for _, module := range []string{"go.mod", "vet/go.mod"} {
		require.NotContains(t, read(t, module), "\nreplace ")
	}
}
