package service

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guardhttp"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

func TestDeduct_SameKeyHasTheSameAnswerFromEveryServer(t *testing.T) {
	t.Parallel()
	dsn, pool := stocked(t)
	a, b := startService(t, config(t, dsn)), startService(t, config(t, dsn))
	first := a.deduct("k-1", `{"qty": 45}`)
	d := first.deduction(t)
	require.Equal(t, []lotLine{{1, 40}, {2, 5}}, d.Lots)
	require.Equal(t, 55, d.Available)
	for _, s := range []*service{a, b, a} {
		for _, same := range []struct{ key, body string }{{"k-1", ` {"qty" : 45} `}, {`"k-1"`, `{"qty":45}`}} {
			again := s.deduct(same.key, same.body)
			require.Equal(t, http.StatusOK, again.status)
			require.Equal(t, first.body, again.body)
		}
	}
	next := b.deduct("k-2", `{"qty":1}`).deduction(t)
	require.Equal(t, 54, next.Available)
	require.NotEqual(t, d.Order, next.Order)
	require.Equal(t, map[string]int{d.Order: 45, next.Order: 1}, reservedByOrder(t, pool))
}

func TestDeduct_RefusesBadRequests(t *testing.T) {
	dsn, pool := stocked(t)
	s := startService(t, config(t, dsn))
	const path = "/v1/skus/" + SKU + "/deduct"
	good := fence.Grant{Resource: Resource(SKU), Epoch: 1, Token: 1, Holder: "h"}
	for name, c := range map[string]struct {
		path, body string
		header     http.Header
		status     int
	}{
		"no key":          {path, `{"qty":1}`, http.Header{keyHeader: nil}, 400},
		"two keys":        {path, `{"qty":1}`, http.Header{keyHeader: {"a", "b"}}, 400},
		"empty key":       {path, `{"qty":1}`, http.Header{keyHeader: {""}}, 400},
		"long key":        {path, `{"qty":1}`, http.Header{keyHeader: {strings.Repeat("k", maxKeyLen+1)}}, 400},
		"one quote":       {path, `{"qty":1}`, http.Header{keyHeader: {`"`}}, 400},
		"large body":      {path, `{"qty":1` + strings.Repeat(" ", maxBody) + `}`, nil, 400},
		"not JSON":        {path, `qty=1`, nil, 400},
		"no qty":          {path, `{}`, nil, 400},
		"unknown member":  {path, `{"qty":1,"sku":"x"}`, nil, 400},
		"none":            {path, `{"qty":0}`, nil, 400},
		"too many":        {path, `{"qty":1001}`, nil, 400},
		"no grant":        {path, `{"qty":1}`, http.Header{guardhttp.Header: {"x"}}, 400},
		"another's grant": {path, `{"qty":1}`, http.Header{guardhttp.Header: {strings.Replace(good.String(), SKU, "lamp-8", 1)}}, 400},
		"unknown sku":     {"/v1/skus/lamp-8/deduct", `{"qty":1}`, nil, 404},
		"control in sku":  {"/v1/skus/lamp%00/deduct", `{"qty":1}`, nil, 400},
		"long sku":        {"/v1/skus/" + strings.Repeat("x", maxSKU+1) + "/deduct", `{"qty":1}`, nil, 400},
	} {
		r := s.request(http.MethodPost, c.path, c.body)
		r.Header = http.Header{"Content-Type": {"application/json"}, keyHeader: {"k"}}
		for name, values := range c.header {
			r.Header[name] = values
		}
		answer := s.call(r)
		require.Equal(t, c.status, answer.status, "%s: %s", name, answer.body)
		require.NotEmpty(t, answer.problem(t)["title"], name)
	}
	require.Empty(t, reservedByOrder(t, pool))
	var fences int
	require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from fence.resource").Scan(&fences))
	require.Zero(t, fences, "bad requests made fences")
	require.NotEmpty(t, s.deduct(strings.Repeat("k", maxKeyLen), `{"qty":1}`).deduction(t).Order)
}

// A deduction under a grant that came from elsewhere is rejected when a newer one
// has claimed the product, and goes through under the newer one with the same key.
func TestDeduct_StaleGrantIs409(t *testing.T) {
	t.Parallel()
	ctx := patient(t)
	dsn, pool := stocked(t)
	cfg := config(t, dsn)
	s := startService(t, cfg)
	locker, err := etcd.New(etcdserver.Client(t), &etcd.Config{Prefix: cfg.Prefix, TTL: time.Minute, Label: "client"})
	require.NoError(t, err)
	defer func() { require.NoError(t, locker.Close(context.WithoutCancel(ctx))) }()

	acquire := func() fence.Lease {
		lease, err := locker.Acquire(ctx, Resource(SKU))
		require.NoError(t, err)
		return lease
	}
	older := acquire()
	before := s.deductUnder(older.Grant(), "k-0")
	require.Equal(t, older.Grant().Token.String(), before.deduction(t).Token)
	require.NoError(t, older.Release(ctx))
	newer := acquire()
	s.deductUnder(newer.Grant(), "k-1").deduction(t)

	rejected := s.deductUnder(older.Grant(), "k-2")
	require.Equal(t, http.StatusConflict, rejected.status)
	p := rejected.problem(t)
	require.Equal(t, "urn:fencekit:problem:stale-grant", p["type"])
	require.Equal(t, older.Grant().Token.String(), p["token"])
	require.Equal(t, newer.Grant().Token.String(), p["current_token"])
	require.Len(t, reservedByOrder(t, pool), 2)

	require.Equal(t, newer.Grant().Token.String(), s.deductUnder(newer.Grant(), "k-2").deduction(t).Token)
	require.Equal(t, before.body, s.deductUnder(newer.Grant(), "k-0").body, "what took effect under the older grant is found under the newer")
	require.NoError(t, newer.Release(ctx))
	s.deduct("k-3", `{"qty":1}`).deduction(t) // under a grant of its own
	require.Len(t, reservedByOrder(t, pool), 4)
	forged := fence.Grant{Resource: Resource(SKU), Epoch: 1 << 30, Token: 1 << 61, Holder: "mallory"}
	rejected = s.deductUnder(forged, "k-4")
	require.Equal(t, http.StatusConflict, rejected.status)
	require.Equal(t, "rejected-grant", rejected.problemName(t))
	require.Len(t, reservedByOrder(t, pool), 4)
}
