package fencekit_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README shows code that is compiled and run: parts of the program of examples/quickstart. A block's
// paragraphs are there as they stand, but for their indentation.
func TestReadme_ShowsTheProgramThatRuns(t *testing.T) {
	readme, program := read(t, "README.md"), "\n"+read(t, "examples/quickstart/main.go")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readme, -1)
	require.Len(t, blocks, 2)
	for _, block := range blocks {
		for _, paragraph := range strings.Split(strings.TrimSpace(block[1]), "\n\n") {
			inside := "\n\t" + strings.ReplaceAll(paragraph, "\n", "\n\t") + "\n"
			require.True(t, strings.Contains(program, inside) || strings.Contains(program, "\n"+paragraph+"\n"),
				"not in examples/quickstart/main.go: %s", paragraph)
		}
	}
}
