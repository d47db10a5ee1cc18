package fencekit_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README shows code that is compiled and run: the program of examples/quickstart, whole
// and in parts. A block's paragraphs are there as they stand, but for their indentation.
func TestReadme_ShowsTheProgramThatRuns(t *testing.T) {
	readme, program := read(t, "README.md"), read(t, "examples/quickstart/main.go")
	_, program, found := strings.Cut(program, "\npackage main\n")
	require.True(t, found)
	require.Contains(t, readme, "```go\npackage main\n"+program+"```\n")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readme, -1)
	require.Len(t, blocks, 2)
	for _, paragraph := range strings.Split(strings.TrimSpace(blocks[0][1]), "\n\n") {
		require.Contains(t, program, "\t"+strings.ReplaceAll(paragraph, "\n", "\n\t")+"\n", "not in examples/quickstart/main.go")
	}
}
