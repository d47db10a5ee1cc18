package live

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/examples/inventory/service"
)

// try runs "inventory try" until the test ends, and returns where it serves.
func try(t *testing.T) (page, api string) {
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
	return page, api
}

func TestTry_ServesOnServersOfItsOwn(t *testing.T) {
	t.Parallel()
	_, url := try(t)
	r, err := http.NewRequestWithContext(patient(t), http.MethodPost, url+"/v1/skus/"+service.SKU+"/deduct", strings.NewReader(`{"qty":2}`))
	require.NoError(t, err)
	r.Header = http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"k"}}
	status, body := send(t, r)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, `"available":98`)
}
