package fencekit_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage/memory"
	"github.com/fencekit/fencekit/storage/postgres"
)

// The guides show code that is compiled here, and run.
func TestDocs_ShowCodeThatIsCompiled(t *testing.T) {
	source := strings.Join(strings.Fields(read(t, "guides_test.go")), " ")
	pages, err := filepath.Glob("docs/guides/*.md")
	require.NoError(t, err)
	blocks := 0
	for _, page := range pages {
		for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, page), -1) {
			blocks++
			if !strings.Contains(source, strings.Join(strings.Fields(block[1]), " ")) {
				t.Errorf("%s shows code that is not in guides_test.go:\n%s", page, block[1])
			}
		}
	}
	require.Greater(t, blocks, 4)
}

// docs/guides/http.md

// sold is the answer to a sale.
type sold struct {
	Left int `json:"left"`
}

func sellHandler(g *guard.Guard[pgx.Tx]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sku, key := r.PathValue("sku"), r.Header.Get("Idempotency-Key")
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
		qty, invalid := strconv.Atoi(string(body))
		if err != nil || invalid != nil || qty < 1 || key == "" {
			http.Error(w, "want a quantity, and an Idempotency-Key", http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		answer, err := guard.Value(ctx, g, "sku/"+sku, func(ctx context.Context, tx pgx.Tx) (sold, error) {
			return take(ctx, tx, sku, qty)
		}, guard.Once(key, body), guard.Retryable())
		if err != nil {
			writeError(w, err)
			return
		}
		fmt.Fprintln(w, answer.Left, "left")
	}
}

func take(ctx context.Context, tx pgx.Tx, sku string, qty int) (sold, error) {
	var left int
	if err := tx.QueryRow(ctx, "select qty from stock where sku = $1", sku).Scan(&left); err != nil {
		return sold{}, err
	}
	if left < qty {
		return sold{}, errSoldOut
	}
	_, err := tx.Exec(ctx, "update stock set qty = $2 where sku = $1", sku, left-qty)
	return sold{left - qty}, err
}

func writeError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, errSoldOut): // your own errors first
		status = http.StatusConflict
	case errors.Is(err, guard.ErrOpReuse):
		status = http.StatusUnprocessableEntity
	case errors.Is(err, guard.ErrUnknownOutcome), errors.Is(err, guard.ErrStaleToken), errors.Is(err, guard.ErrStoreTimeout), errors.Is(err, guard.ErrClosed),
		errors.Is(err, fence.ErrUnavailable), errors.Is(err, fence.ErrLocked), errors.Is(err, fence.ErrLeaseLost), errors.Is(err, postgres.ErrUnavailable),
		errors.Is(err, context.DeadlineExceeded):
		w.Header().Set("Retry-After", "1")
		status = http.StatusServiceUnavailable
	}
	log.Print(err) // the text is for your log: it names hosts and holders
	http.Error(w, http.StatusText(status), status)
}

func Example_http() {
	ctx := context.Background()
	client, pool := connect(ctx)
	defer client.Close()
	defer pool.Close()
	store, err := postgres.NewStore(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	g, err := guard.New(guardtest.NewLocker(), store, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close(ctx)
	mux := http.NewServeMux()
	mux.Handle("POST /skus/{sku}/sell", sellHandler(g))

	for _, call := range [][2]string{{"a", "2"}, {"a", "2"}, {"a", "1"}, {"b", "2"}, {"", "1"}} {
		request := httptest.NewRequest("POST", "/skus/42/sell", strings.NewReader(call[1]))
		request.Header.Set("Idempotency-Key", call[0])
		response := httptest.NewRecorder()
		mux.ServeHTTP(response, request)
		fmt.Println(call, response.Code, string(bytes.TrimSpace(response.Body.Bytes())))
	}
	// Output:
	// [a 2] 200 1 left
	// [a 2] 200 1 left
	// [a 1] 422 Unprocessable Entity
	// [b 2] 409 Conflict
	// [ 1] 400 want a quantity, and an Idempotency-Key
}

// docs/guides/database-access.md

// dbtx and queries are as sqlc generates them with sql_package "pgx/v5".
type dbtx interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
}

type queries struct{ db dbtx }

func newQueries(db dbtx) *queries { return &queries{db: db} }

func (q *queries) Stock(ctx context.Context, sku string) (qty int32, err error) {
	err = q.db.QueryRow(ctx, "select qty from stock where sku = $1", sku).Scan(&qty)
	return qty, err
}

func (q *queries) SetStock(ctx context.Context, sku string, qty int32) error {
	_, err := q.db.Exec(ctx, "update stock set qty = $2 where sku = $1", sku, qty)
	return err
}

func sellTwo(ctx context.Context, g *guard.Guard[pgx.Tx]) error {
	return guard.Do(ctx, g, "sku/42", func(ctx context.Context, tx pgx.Tx) error {
		q := newQueries(tx) // in each transaction, from its tx
		qty, err := q.Stock(ctx, "42")
		if err != nil {
			return err
		}
		return q.SetStock(ctx, "42", qty-2)
	})
}

func Example_sqlc() {
	ctx := context.Background()
	client, pool := connect(ctx)
	defer client.Close()
	defer pool.Close()
	store, err := postgres.NewStore(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	g, err := guard.New(guardtest.NewLocker(), store, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close(ctx)
	if err := sellTwo(ctx, g); err != nil {
		log.Fatal(err)
	}
	fmt.Println(newQueries(pool).Stock(ctx, "42"))
	// Output: 1 <nil>
}

// docs/guides/testing.md

func TestGuides_Fenced(t *testing.T) {
	client, pool := connect(t.Context())
	defer client.Close()
	defer pool.Close()
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	testSellIsFenced(t, pool, store)
	testSellMayBeCalledAgain(t, pool, store)
}

func testSellIsFenced(t *testing.T, pool *pgxpool.Pool, store *postgres.Store) {
	sku := rand.Text() // a fresh one each time
	_, err := pool.Exec(t.Context(), "insert into stock values ($1, 5)", sku)
	require.NoError(t, err)

	guardtest.RequireFenced(t, store, "sku/"+sku,
		func(ctx context.Context, p guardtest.Process[pgx.Tx]) error {
			return guard.Do(ctx, p.Guard, "sku/"+sku, func(ctx context.Context, tx pgx.Tx) error {
				_, err := take(ctx, tx, sku, 1)
				return err
			})
		},
		func(ctx context.Context) (qty int, err error) { return stockOf(ctx, pool, sku) })
}

func testSellMayBeCalledAgain(t *testing.T, pool *pgxpool.Pool, store *postgres.Store) {
	sku := rand.Text()
	_, err := pool.Exec(t.Context(), "insert into stock values ($1, 5)", sku)
	require.NoError(t, err)

	guardtest.RequireIdempotent(t, store, "sku/"+sku,
		func(ctx context.Context, p guardtest.Process[pgx.Tx]) (sold, error) {
			return guard.Value(ctx, p.Guard, "sku/"+sku, func(ctx context.Context, tx pgx.Tx) (sold, error) {
				return take(ctx, tx, sku, 1)
			}, guard.Once("order-7/"+sku, nil))
		},
		func(ctx context.Context) (qty int, err error) { return stockOf(ctx, pool, sku) })
}

func stockOf(ctx context.Context, pool *pgxpool.Pool, sku string) (qty int, err error) {
	err = pool.QueryRow(ctx, "select qty from stock where sku = $1", sku).Scan(&qty)
	return qty, err
}

func TestGuides_NoDatabase(t *testing.T) {
	store := memory.NewStore()
	g, err := guard.New(guardtest.NewLocker(), store, nil)
	require.NoError(t, err)
	defer g.Close(t.Context())
	require.NoError(t, guard.Do(t.Context(), g, "job/1", func(_ context.Context, tx *memory.Tx) error { return tx.Set("job/1", "done") }))
	require.Equal(t, "done", store.Read("job/1"))
}

func TestGuides_Election(t *testing.T) {
	service := guardtest.NewLockService()
	election, err := service.NewLocker("first").Election("restocker")
	require.NoError(t, err)
	leadership, err := election.Campaign(t.Context(), "10.0.0.7:8080")
	require.NoError(t, err)

	service.Lose("restocker") // what a pause longer than the time to live does
	<-leadership.Done()
	require.ErrorIs(t, context.Cause(leadership.Context()), fence.ErrLeaseLost)

	second, err := service.NewLocker("second").Election("restocker")
	require.NoError(t, err)
	next, err := second.Campaign(t.Context(), "10.0.0.8:8080")
	require.NoError(t, err)
	require.Positive(t, next.Grant().Compare(leadership.Grant())) // the deposed leader's writes are rejected by this
	require.NoError(t, next.Resign(t.Context()))
}
