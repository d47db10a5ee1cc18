package guardhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardhttp"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

const resource = "sku/42"

func grant(token fence.Token) fence.Grant {
	return fence.Grant{Resource: resource, Epoch: 1, Token: token, Holder: "host-of-ours-9f"}
}

func TestSetGrants_ReplacesWhatWasThere(t *testing.T) {
	t.Parallel()
	h := http.Header{"Fencekit-Grant": {"x"}, "Other": {"y"}}
	other := fence.Grant{Resource: "größe:1, 2\r\nX: y", Epoch: 1, Token: 3, Holder: "h"}
	guardhttp.SetGrants(h, grant(1), other)
	require.Equal(t, http.Header{"Fencekit-Grant": {grant(1).String(), other.String()}, "Other": {"y"}}, h)
	require.NotContains(t, strings.Join(h["Fencekit-Grant"], ""), "\n")
	guardhttp.SetGrants(h)
	require.Equal(t, http.Header{"Other": {"y"}}, h)
}

// The whole table, from one error of each kind. The texts name what a client must not see.
func TestError_AnswersWithAProblemThatTellsNothingOfServers(t *testing.T) {
	t.Parallel()
	secret := errors.New("dial tcp 10.0.0.7:5432: password for user shop at postgres://shop:hunter2@db")
	rejected := func(reason storage.Reason, travelled bool) error {
		return &guard.RejectedError{Reason: reason, Grant: grant(7), Current: grant(9), Travelled: travelled, Err: secret}
	}
	for name, c := range map[string]struct {
		err    error
		status int
		kind   string
	}{
		"malformed":            {&fence.InvalidGrantError{Part: "text form", Reason: secret.Error()}, 400, "invalid-grant"},
		"not signed":           {&guardhttp.SignatureError{Grant: grant(7)}, 403, "unsigned-grant"},
		"stale, travelled":     {rejected(storage.ReasonStale, true), 409, "stale-grant"},
		"collision, travelled": {rejected(storage.ReasonCollision, true), 409, "rejected-grant"},
		"key reused":           {&storage.KeyReusedError{Resource: resource, Key: "hunter2"}, 422, "key-reused"},
		"unknown":              {&guard.UnknownOutcomeError{Err: secret, AskErr: secret}, 500, "unknown-outcome"},
		"unknown, Once":        {&guard.UnknownOutcomeError{Once: true, Err: secret, AskErr: secret}, 503, "unknown-outcome"},
		"etcd away":            {&fence.UnavailableError{Call: "acquire hunter2", Err: secret}, 503, "unavailable"},
		"stopping":             {fmt.Errorf("%w: %w", guard.ErrClosed, secret), 503, "stopping"},
		"the function's own":   {secret, 500, ""},
	} {
		r, w := httptest.NewRequest(http.MethodPost, "/", nil), httptest.NewRecorder()
		guardhttp.SetGrants(r.Header, grant(7))
		w.Header().Set("Content-Length", "3") // of the answer that it meant to give
		guardhttp.Error(w, r, fmt.Errorf("selling at db: %w", c.err))
		require.Equal(t, c.status, w.Code, name)
		require.Equal(t, c.status, guardhttp.Status(c.err), name)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), name)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"), name)
		require.Empty(t, w.Header().Get("Content-Length"), name)
		require.Equal(t, c.status == 503, w.Header().Get("Retry-After") != "", name)

		var body map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body), name)
		kind := "urn:fencekit:problem:" + c.kind
		if c.kind == "" {
			kind = "about:blank"
		}
		require.Equal(t, kind, body["type"], name)
		require.EqualValues(t, c.status, body["status"], name)
		require.NotEmpty(t, body["title"], name)
		require.Equal(t, c.kind == "stale-grant", body["current_token"] != nil, name)
		for _, leak := range []string{"hunter2", "10.0.0.7", "host-of-ours", "sku", "postgres", "etcd", "selling"} {
			require.NotContains(t, w.Body.String(), leak, name)
		}
	}
}

func TestError_OfNilAnswersNothing(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	guardhttp.Error(w, httptest.NewRequest(http.MethodPost, "/", nil), nil)
	require.Empty(t, w.Header())
	require.Empty(t, w.Body.String())
	require.Equal(t, http.StatusOK, guardhttp.Status(nil))
}

// receiver is a service with a database of its own and no lock service. With keys it takes signed
// grants.
func receiver(t *testing.T, keys ...[]byte) (*httptest.Server, *memory.Store) {
	t.Helper()
	read := guardhttp.Grants
	if len(keys) > 0 {
		read = func(h http.Header) ([]fence.Grant, error) { return guardhttp.SignedGrants(h, keys...) }
	}
	store := memory.NewStore()
	g, err := guard.New(nil, store, nil)
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		grants, err := read(r.Header)
		if err == nil {
			err = guard.Do(r.Context(), g.UnderGrant(grants...), resource, func(_ context.Context, tx *memory.Tx) error {
				tx.Set("writer", r.FormValue("writer"))
				return nil
			})
		}
		guardhttp.Error(w, r, err)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return server, store
}

// post sends a request of a writer with the header's values, and returns status and body.
func post(t *testing.T, url, writer string, h http.Header) (int, map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"?writer="+writer, nil)
	require.NoError(t, err)
	for name, values := range h {
		r.Header[name] = values
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	var body map[string]any
	if response.StatusCode != http.StatusOK {
		require.NoError(t, json.NewDecoder(response.Body).Decode(&body))
	}
	return response.StatusCode, body
}

func TestGrants_ThatAreMissingOrHostileWriteNothing(t *testing.T) {
	t.Parallel()
	server, store := receiver(t)
	other := grant(5)
	other.Resource = "sku/43"
	for name, values := range map[string][]string{
		"none":                 nil,
		"not a grant":          {"1"},
		"of another resource":  {other.String()},
		"joined, and one more": {grant(5).String() + ", " + other.String() + ","},
	} {
		status, body := post(t, server.URL, name[:1], http.Header{guardhttp.Header: values})
		require.Equal(t, http.StatusBadRequest, status, name)
		require.Equal(t, "urn:fencekit:problem:invalid-grant", body["type"], name)
	}
	entries, err := store.Entries(t.Context(), resource, 0, 10)
	require.NoError(t, err)
	require.Empty(t, entries, "nothing was claimed")
	status, _ := post(t, server.URL, "x", http.Header{"fencekit-grant": {grant(5).String()}})
	require.Equal(t, http.StatusOK, status, "names of headers are the same in any case")
}

// Whoever can reach the receiver but has no key neither writes nor shuts the true holder out.
func TestSignedGrants_MadeUpOnesClaimNothing(t *testing.T) {
	t.Parallel()
	before, now := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	server, store := receiver(t, before, now)
	signed := func(key []byte, token fence.Token) http.Header {
		h := http.Header{}
		require.NoError(t, guardhttp.SetSignedGrants(h, key, grant(token)))
		return h
	}
	status, _ := post(t, server.URL, "a", signed(before, 5))
	require.Equal(t, http.StatusOK, status)
	madeUp := http.Header{}
	guardhttp.SetGrants(madeUp, grant(1_000_000_005))
	for name, h := range map[string]http.Header{"unsigned": madeUp, "of another key": signed([]byte("another of 16 b."), 1_000_000_005)} {
		status, body := post(t, server.URL, "b", h)
		require.Equal(t, http.StatusForbidden, status, name)
		require.Equal(t, "urn:fencekit:problem:unsigned-grant", body["type"], name)
	}
	status, _ = post(t, server.URL, "c", signed(now, 6))
	require.Equal(t, http.StatusOK, status)
	status, body := post(t, server.URL, "a", signed(before, 5))
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, "6", body["current_token"])
	require.Equal(t, "c", store.Read("writer"))
}
