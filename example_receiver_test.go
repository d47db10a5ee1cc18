package fencekit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardhttp"
)

// deductHandler runs deduct, the function of the first example, under the grants that the
// request came with.
func deductHandler(g *guard.Guard[pgx.Tx]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		grants, err := guardhttp.Grants(r.Header)
		if err == nil {
			err = deduct(r.Context(), g.UnderGrant(grants...), r.PathValue("sku"), 1)
		}
		switch {
		case errors.Is(err, errSoldOut): // your own errors first
			http.Error(w, "sold out", http.StatusConflict)
		case err != nil:
			guardhttp.Error(w, r, err)
		}
	}
}

// A holder sends its grant along, and the receiver writes under it to a database of its own,
// without a lock service. A request that comes late is rejected.
func Example_receiver() {
	ctx := context.Background()
	pool := connect(ctx)
	defer pool.Close()
	sender, err := fencekit.New(pool, &fencekit.Config{Guard: guard.Config{KeepFor: -1}}) // each Hold acquires anew
	if err != nil {
		log.Fatal(err)
	}
	defer sender.Close(ctx)
	itsPool := connect(ctx)
	defer itsPool.Close()
	receiver := receiverOn(itsPool)
	defer receiver.Close(ctx)
	mux := http.NewServeMux()
	mux.Handle("POST /skus/{sku}/deduct", deductHandler(receiver))

	send := func(grants ...fence.Grant) {
		r := httptest.NewRequest("POST", "/skus/42/deduct", nil)
		guardhttp.SetGrants(r.Header, grants...)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	var late []fence.Grant
	for range 2 {
		err := guard.Hold(ctx, sender, "sku/42", func(ctx context.Context, h fencekit.Runner) error {
			send(guard.Grants(ctx)...)
			if late == nil {
				late = guard.Grants(ctx)
			}
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	send(late...)
	send()
	// Output:
	// 200
	// 200
	// 409
	// 400
}
