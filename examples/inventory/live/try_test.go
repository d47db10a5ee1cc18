package live

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// try runs "inventory try" until the test ends, and returns where its page is, once it serves the API too.
func try(t *testing.T) (page string) {
	t.Helper()
	cfg, err := Parse([]string{"-listen", "127.0.0.1:0", "-page", "127.0.0.1:0"})
	require.NoError(t, err)
	ctx, interrupt := context.WithCancel(patient(t))
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := Try(ctx, cfg, in, quiet)
		in.Close()
		done <- err
	}()
	t.Cleanup(func() {
		interrupt()
		require.NoError(t, <-done)
	})
	var api string
	for lines := bufio.NewScanner(out); api == "" && lines.Scan(); {
		if url, is := strings.CutPrefix(lines.Text(), "open "); is {
			page = strings.TrimSuffix(url, " in a browser")
		}
		if url, is := strings.CutPrefix(lines.Text(), "serving on "); is {
			api = url
		}
	}
	require.NotEmpty(t, page, "it never said where the page is")
	require.NotEmpty(t, api, "it never said where it serves")
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return page
}
