package service

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
)

func TestListSKUs_PagesThroughAll(t *testing.T) {
	dsn, pool := stocked(t)
	s := startService(t, config(t, dsn))
	want := []skuStock{{SKU, 100, 3, 97}}
	for _, name := range []string{"Zebra", "a b&c", "lamp-7/b", "lampe", "\u00e9clair"} {
		_, err := pool.Exec(t.Context(), "insert into lot (sku, received, quantity) values ($1, now(), 2), ($1, now(), 5)", name)
		require.NoError(t, err)
		want = append(want, skuStock{name, 7, 0, 7})
	}
	s.deduct("k", `{"qty":3}`).deduction(t)
	for _, limit := range []int{1, 2, 3, 6, 7} {
		var got []skuStock
		for after, pages := "", 0; ; pages++ {
			var page skuPage
			answer := s.get(fmt.Sprintf("/v1/skus?limit=%d&after=%s", limit, url.QueryEscape(after)))
			require.Equal(t, http.StatusOK, answer.status, answer.body)
			require.NoError(t, json.Unmarshal([]byte(answer.body), &page))
			require.NotEmpty(t, page.SKUs)
			got = append(got, page.SKUs...)
			if page.Next == "" {
				require.Equal(t, (len(want)-1)/limit, pages)
				break
			}
			after = page.Next
		}
		require.ElementsMatch(t, want, got)
		require.IsIncreasing(t, names(got))
	}
	require.Equal(t, `{"skus":[]}`+"\n", s.get("/v1/skus?after=%F0%9F%98%80").body)
	for _, query := range []string{"limit=0", "limit=1001", "limit=x", "limit=-1", "after=%00", "after=%ff"} {
		require.Equal(t, http.StatusBadRequest, s.get("/v1/skus?"+query).status, query)
	}
	slash := s.call(s.withPath(s.order("k", `{"qty":1}`), "/v1/skus/lamp-7%2Fb/deduct"))
	require.Equal(t, "lamp-7/b", slash.deduction(t).SKU)
}

func names(stock []skuStock) (names []string) {
	for _, s := range stock {
		names = append(names, s.SKU)
	}
	return names
}

func TestHistory_PagesThroughAllInOrder(t *testing.T) {
	dsn, _ := stocked(t)
	s := startService(t, config(t, dsn))
	const path = "/v1/skus/" + SKU + "/history"
	empty := s.get(path)
	require.Equal(t, `{"sku":"lamp-7","entries":[],"rejections":[]}`+"\n", empty.body)
	for n := range 6 {
		s.deduct(fmt.Sprint("k-", n), `{"qty":1}`).deduction(t)
	}
	for _, limit := range []int{1, 3, 7, 8} {
		var keys []string
		after, seq := int64(0), int64(0)
		for {
			var page historyPage
			answer := s.get(fmt.Sprintf("%s?limit=%d&after=%d", path, limit, after))
			require.NoError(t, json.Unmarshal([]byte(answer.body), &page))
			for _, e := range page.Entries {
				seq++
				require.Equal(t, seq, e.Seq)
				for _, op := range e.Ops {
					keys = append(keys, op.ID)
				}
			}
			if after = page.Next; after == 0 {
				break
			}
			require.Len(t, page.Entries, limit)
		}
		require.EqualValues(t, 7, seq, "a claim and six deductions")
		require.Equal(t, []string{"k-0", "k-1", "k-2", "k-3", "k-4", "k-5"}, keys)
	}
	for _, holder := range []string{"a", "b", "a", "c"} {
		stale := fence.Grant{Resource: Resource(SKU), Epoch: 1, Token: 1, Holder: holder}
		require.Equal(t, "stale-grant", s.deductUnder(stale, "k").problemName(t))
	}
	var last historyPage
	require.NoError(t, json.Unmarshal([]byte(s.get(path+"?limit=2&after=6").body), &last))
	require.Len(t, last.Entries, 1)
	require.Len(t, last.Rejections, 2, "the latest")
	require.Equal(t, []string{"a", "c"}, []string{last.Rejections[0].Holder, last.Rejections[1].Holder}, "oldest first")
	require.EqualValues(t, 2, last.Rejections[0].Count)
	for _, query := range []string{"limit=0", "limit=1001", "after=-1", "after=x", "after=99999999999999999999"} {
		require.Equal(t, http.StatusBadRequest, s.get(path+"?"+query).status, query)
	}
	require.Equal(t, http.StatusNotFound, s.get("/v1/skus/lamp-8/history").status)
	require.Equal(t, http.StatusBadRequest, s.get("/v1/skus/lamp%00/history").status)
}
