package service

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
)

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
