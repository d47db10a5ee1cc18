package demo

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

func TestTry_ServesOnServersOfItsOwn(t *testing.T) {
	t.Parallel()
	cfg, err := ParseTry([]string{"-listen", "127.0.0.1:0"})
	require.NoError(t, err)
	ctx, interrupt := context.WithCancel(patient(t))
	defer interrupt()
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := Try(ctx, cfg, in, quiet)
		in.Close()
		done <- err
	}()
	var url string
	lines := bufio.NewScanner(out)
	for url == "" && lines.Scan() {
		url, _ = strings.CutPrefix(lines.Text(), "serving on ")
		if !strings.HasPrefix(url, "http") {
			url = ""
		}
	}
	require.NotEmpty(t, url, "it never said where it serves")
	go func() { _, _ = io.Copy(io.Discard, out) }()

	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/skus/"+service.SKU+"/deduct", strings.NewReader(`{"qty":2}`))
	require.NoError(t, err)
	r.Header = http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"k"}}
	response, err := client.Do(r)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode, string(body))
	require.Contains(t, string(body), `"available":98`)
	interrupt()
	require.NoError(t, <-done)
}
