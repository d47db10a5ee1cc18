package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
)

// What a shell asks for, and the answer: words, and then :0 for the names of files too, or :4 for
// no others.
func TestCompletion_OfCommandLines(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"tok":                          "tokens :4",
		"tokens history ":              ":4",
		"tokens history sku/42 --kin":  "--kind :4",
		"tokens history a --kind ":     "claim write void rejection :4",
		"tokens history a --since ":    ":4",
		"tokens history a --token ":    ":4",
		"locks list -o ":               "table json jsonl csv :4",
		"locks queue ":                 ":4",
		"locks list --etcd-cacert ":    ":0",
		"locks list --etcd-prefix ":    ":4",
		"audit export --out ":          ":0",
		"audit anchor --key ":          ":0",
		"audit verify --log ":          ":0",
		"audit verify --checkpoint ":   ":0",
		"audit verify --export ":       ":0",
		"audit verify ":                ":4",
		"audit nosuch ":                ":4",
		"history prune --export ":      ":0",
		"protect stock --mode ":        "audit enforce :4",
		"epoch bump --trust ":          "databases etcd :4",
		"exec ":                        ":4",
		"exec nightly -- ":             ":0",
		"completion ":                  "bash zsh fish powershell :4",
		"audit verify --database-url ": ":4",
	} {
		got := fencectl(t, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
		var words []string
		for answer := range strings.Lines(got.Stdout) {
			word, _, _ := strings.Cut(strings.TrimSpace(answer), "\t") // what follows describes it
			words = append(words, word)
		}
		require.Equal(t, want, strings.Join(words, " "), line)
	}
	require.Contains(t, fencectl(t, "__complete", "doctor", "--ignore", "").Stdout, "etcd-member-silent\n")
}
