package fencekit_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	page    = regexp.MustCompile(`[\w./-]*\w\.md\b`)
)

// Every link to a page, a file or a heading of this repository leads there.
func TestDocs_LinksLeadSomewhere(t *testing.T) {
	texts(t, func(path, text string) {
		if filepath.Ext(path) != ".md" {
			return
		}
		for _, found := range link.FindAllStringSubmatch(withoutCode(text), -1) {
			target, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") || strings.HasPrefix(target, "../../") && strings.Contains(target, "security/") {
				continue
			}
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s: %v", path, found[1], err)
			} else if anchor != "" && !anchors(read(t, file))[anchor] {
				t.Errorf("%s links to %s, and %s has no such heading", path, found[1], file)
			}
		}
	})
}

// No text rests on a page that is not in this repository.
func TestDocs_NameNoPageThatIsMissing(t *testing.T) {
	there := map[string]bool{}
	texts(t, func(path, _ string) { there[filepath.Base(path)] = true })
	texts(t, func(path, text string) {
		for line := range strings.Lines(text) {
			if !strings.Contains(line, ".md") {
				continue // nearly all of the text, which the expression takes long to read
			}
			for _, name := range page.FindAllString(line, -1) {
				if !there[filepath.Base(name)] && !strings.Contains(name, "NNNN") {
					t.Errorf("%s names %s, which is not in this repository", path, name)
				}
			}
		}
	})
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

// The index leads to every page that is written for readers.
func TestDocs_IndexHasEveryPage(t *testing.T) {
	listed := map[string]bool{"docs/README.md": true}
	for _, found := range link.FindAllStringSubmatch(read(t, "docs/README.md"), -1) {
		target, _, _ := strings.Cut(found[1], "#")
		listed[filepath.Join("docs", target)] = true
	}
	texts(t, func(path, _ string) {
		inDocs := strings.HasPrefix(path, "docs/") && !strings.HasPrefix(path, "docs/adr/")
		if filepath.Ext(path) == ".md" && (inDocs || !strings.Contains(path, "/") || strings.HasPrefix(path, "chaos/")) && !listed[path] {
			t.Errorf("docs/README.md doesn't lead to %s", path)
		}
	})
}
