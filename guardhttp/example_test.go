package guardhttp_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardhttp"
	"github.com/fencekit/fencekit/storage/memory"
)

var errSoldOut = errors.New("sold out")

// A service that writes under the grants of its clients. It has a database of its own, and no
// lock service.
func Example() {
	g, err := guard.New(nil, memory.NewStore(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close(context.Background())
	sell := func(_ context.Context, tx *memory.Tx) error {
		if sold, err := tx.Get("sold"); err != nil || sold != "" {
			return cmp.Or(err, errSoldOut)
		}
		tx.Set("sold", "yes")
		return nil
	}
	errorLog := log.New(io.Discard, "", 0)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /skus/{sku}/sell", func(w http.ResponseWriter, r *http.Request) {
		grants, err := guardhttp.Grants(r.Header)
		if err == nil {
			err = guard.Do(r.Context(), g.UnderGrant(grants...), "sku/"+r.PathValue("sku"), sell)
		}
		switch {
		case errors.Is(err, errSoldOut): // your own errors first
			http.Error(w, "sold out", http.StatusConflict)
		case err != nil:
			errorLog.Print(err) // the text is for your log
			guardhttp.Error(w, r, err)
		default:
			fmt.Fprintln(w, "sold")
		}
	})

	send := func(grants ...fence.Grant) {
		r := httptest.NewRequest("POST", "/skus/42/sell", nil)
		guardhttp.SetGrants(r.Header, grants...)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Print(w.Code, " ", w.Body)
	}
	send(fence.Grant{Resource: "sku/42", Epoch: 1, Token: 131, Holder: "worker-b"})
	send(fence.Grant{Resource: "sku/42", Epoch: 1, Token: 118, Holder: "worker-a"}) // late
	send(fence.Grant{Resource: "sku/42", Epoch: 1, Token: 131, Holder: "worker-b"})
	send()
	// Output:
	// 200 sold
	// 409 {"type":"urn:fencekit:problem:stale-grant","title":"Stale grant","status":409,"detail":"A later grant has claimed the resource. Acquire anew, read anew and decide anew.","epoch":1,"token":"118","current_epoch":1,"current_token":"131"}
	// 409 sold out
	// 400 {"type":"urn:fencekit:problem:invalid-grant","title":"Grant missing or invalid","status":400,"detail":"A grant is missing, malformed or for another resource."}
}
