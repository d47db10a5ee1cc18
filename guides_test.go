package fencekit_test

import (
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
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/guardhttp"
	"github.com/fencekit/fencekit/guardprometheus"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
	"github.com/fencekit/fencekit/storage/postgres"
)

// The guides show code that is compiled here, and run.
func TestDocs_ShowCodeThatIsCompiled(t *testing.T) {
	source := strings.Join(strings.Fields(read(t, "guides_test.go")+read(t, "example_election_test.go")+read(t, "example_hold_test.go")), " ")
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	blocks := 0
	for _, page := range pages {
		for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, page), -1) {
			blocks++
			if !strings.Contains(source, strings.Join(strings.Fields(block[1]), " ")) {
				t.Errorf("%s shows code that is in none of guides_test.go, example_election_test.go and example_hold_test.go:\n%s", page, block[1])
			}
		}
	}
	require.Greater(t, blocks, 4)
}

// docs/guide.md

// sold is the answer to a sale.
type sold struct {
	Left int `json:"left"`
}

func sellHandler(g fencekit.Runner) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sku, key := r.PathValue("sku"), r.Header.Get("Idempotency-Key")
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
		qty, invalid := strconv.Atoi(string(body))
		if err != nil || invalid != nil || qty < 1 || key == "" || len(key) > 200 || fence.ValidateResource("sku/"+sku) != nil {
			http.Error(w, "want a product, a quantity, and an Idempotency-Key of at most 200 bytes", http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		answer, err := guard.Value(ctx, g, "sku/"+sku, func(ctx context.Context, tx pgx.Tx) (sold, error) {
			return take(ctx, tx, sku, qty)
		}, guard.Once(key, body), guard.Retryable())
		if err != nil {
			writeError(w, r, err)
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

func writeError(w http.ResponseWriter, r *http.Request, err error) {
	log.Print(err) // the text is for your log: it names hosts and holders
	switch {
	case errors.Is(err, errSoldOut): // your own errors first
		http.Error(w, "sold out", http.StatusConflict)
	default:
		guardhttp.Error(w, r, err)
	}
}

// askWarehouse sends a request under the grants that ctx's function runs under.
func askWarehouse(ctx context.Context, url string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return nil, err
	}
	guardhttp.SetGrants(r.Header, guard.Grants(ctx)...)
	return http.DefaultClient.Do(r)
}

func warehouseHandler(g *guard.Guard[pgx.Tx]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		grants, err := guardhttp.Grants(r.Header)
		if err == nil {
			err = guard.Do(r.Context(), g.UnderGrant(grants...), "sku/"+r.PathValue("sku"), func(ctx context.Context, tx pgx.Tx) error {
				_, err := take(ctx, tx, r.PathValue("sku"), 1)
				return err
			})
		}
		if err != nil {
			writeError(w, r, err)
		}
	}
}

func Example_http() {
	ctx := context.Background()
	g, _, done := open(ctx)
	defer done()
	mux := http.NewServeMux()
	mux.Handle("POST /skus/{sku}/sell", sellHandler(g))

	for _, call := range [][2]string{{"a", "2"}, {"a", "2"}, {"a", "1"}, {"b", "2"}, {"", "1"}} {
		request := httptest.NewRequest("POST", "/skus/42/sell", strings.NewReader(call[1]))
		request.Header.Set("Idempotency-Key", call[0])
		response := httptest.NewRecorder()
		mux.ServeHTTP(response, request)
		body, _, _ := strings.Cut(response.Body.String(), ",")
		fmt.Println(call, response.Code, strings.TrimSpace(body))
	}
	// Output:
	// [a 2] 200 1 left
	// [a 2] 200 1 left
	// [a 1] 422 {"type":"urn:fencekit:problem:key-reused"
	// [b 2] 409 sold out
	// [ 1] 400 want a product
}

func Example_grantsInRequests() {
	ctx := context.Background()
	pool := connect(ctx)
	defer pool.Close()
	receiver := receiverOn(pool)
	defer receiver.Close(ctx)
	mux := http.NewServeMux()
	mux.Handle("POST /skus/{sku}/take", warehouseHandler(receiver))
	warehouse := httptest.NewServer(mux)
	defer warehouse.Close()

	g, err := guard.New(guardtest.NewLocker(), memory.NewStore(), nil) // the sender has another database
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close(ctx)
	for _, sku := range []string{"42", "43"} {
		err := guard.Hold(ctx, g, "sku/42", func(ctx context.Context, _ guard.Runner[*memory.Tx]) error {
			response, err := askWarehouse(ctx, warehouse.URL+"/skus/"+sku+"/take")
			if err != nil {
				return err
			}
			defer response.Body.Close()
			fmt.Println(sku, response.StatusCode)
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 42 200
	// 43 400
}

func sellAtOnce(ctx context.Context, g fencekit.Runner, qty int) (left int, err error) {
	var b postgres.Batch
	sold := b.Exec("update stock set qty = qty - $1 where sku = '42' and qty >= $1 returning qty", qty).MustAffect(1).Returning()
	b.Exec("insert into sale (sku, qty) values ('42', $1)", qty)
	err = guard.Exec(ctx, g, "sku/42", &b)
	if soldOut := (*postgres.AffectedError)(nil); errors.As(err, &soldOut) {
		return 0, errSoldOut
	}
	if err != nil {
		return 0, err
	}
	var rows []struct{ Qty int }
	if err := sold.Decode(&rows); err != nil {
		return 0, err
	}
	return rows[0].Qty, nil
}

func Example_batch() {
	ctx := context.Background()
	g, _, done := open(ctx)
	defer done()
	fmt.Println(sellAtOnce(ctx, g, 2))
	fmt.Println(sellAtOnce(ctx, g, 2))
	fmt.Println(stockNow(ctx, g))
	// Output:
	// 1 <nil>
	// 0 sold out
	// 1 <nil>
}

func stockNow(ctx context.Context, g fencekit.Runner) (qty int, err error) {
	return guard.Value(ctx, g, "sku/42", func(ctx context.Context, tx pgx.Tx) (qty int, err error) {
		err = tx.QueryRow(ctx, "select qty from stock where sku = '42'").Scan(&qty)
		return qty, err
	}, guard.ReadOnly(), guard.Retryable())
}

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

func sellTwo(ctx context.Context, g fencekit.Runner) error {
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
	g, pool, done := open(ctx)
	defer done()
	if err := sellTwo(ctx, g); err != nil {
		log.Fatal(err)
	}
	fmt.Println(newQueries(pool).Stock(ctx, "42"))
	// Output: 1 <nil>
}

// docs/guide.md, "Testing"

func TestGuides_Fenced(t *testing.T) {
	pool := connect(t.Context())
	defer pool.Close()
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	testSellIsFenced(t, pool, store)
	testSellMayBeCalledAgain(t, pool, store)
	testSellIsRightInAnyOrder(t, pool, store)
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

func testSellIsRightInAnyOrder(t *testing.T, pool *pgxpool.Pool, store *postgres.Store) {
	sku := rand.Text()
	guardtest.Simulate(t, store, "sku/"+sku, guardtest.Simulation[pgx.Tx]{
		Prepare: func(ctx context.Context) error {
			_, err := pool.Exec(ctx, "insert into stock values ($1, 5) on conflict (sku) do update set qty = 5", sku)
			return err
		},
		Run: func(ctx context.Context, p guardtest.Process[pgx.Tx]) error {
			return guard.Do(ctx, p.Guard, "sku/"+sku, func(ctx context.Context, tx pgx.Tx) error {
				_, err := take(ctx, tx, sku, 1)
				return err
			})
		},
		Check: func(ctx context.Context, least, most int) error {
			qty, err := stockOf(ctx, pool, sku)
			if sold := 5 - qty; sold < least || sold > most {
				return fmt.Errorf("%d were sold, and %d to %d calls say so", sold, least, most)
			}
			return err
		},
	})
}

// With a key, reads without a lock, and several transactions with a call in between.
func TestGuides_CodeIsRightInAnyOrder(t *testing.T) {
	pool := connect(t.Context())
	defer pool.Close()
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	for name, run := range map[string]func(ctx context.Context, p guardtest.Process[pgx.Tx]) error{
		"Once": func(ctx context.Context, p guardtest.Process[pgx.Tx]) error {
			for key := rand.Text(); ; {
				_, err := guard.Value(ctx, p.Guard, "account/a", func(ctx context.Context, tx pgx.Tx) (int, error) {
					n, err := balance(ctx, tx, "a")
					if err == nil {
						err = setBalance(ctx, tx, "a", n-1)
					}
					return n, err
				}, guard.Once(key, nil), guard.Retryable())
				if !guard.SafeToRetry(err) {
					return err
				}
			}
		},
		"ReadOnly, and Hold": func(ctx context.Context, p guardtest.Process[pgx.Tx]) error {
			if _, err := stockNow(ctx, p.Guard); err != nil {
				return fmt.Errorf("nothing was paid: %v", err)
			}
			pay := func(context.Context, string, int, []fence.Grant) error { p.Point("calls the bank"); return nil }
			return payout(ctx, p.Guard, pay, "a", "payout", 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			guardtest.Simulate(t, store, []string{"account/a", "sku/42"}, guardtest.Simulation[pgx.Tx]{
				Prepare: func(ctx context.Context) error {
					_, err := pool.Exec(ctx, "update account set balance = 10 where name = 'a'")
					return err
				},
				Run: run,
				Check: func(ctx context.Context, least, most int) error {
					var n int
					err := pool.QueryRow(ctx, "select balance from account where name = 'a'").Scan(&n)
					if err == nil && (10-n < least || name == "Once" && 10-n > most) { // a Hold may have paid before it says that it didn't
						err = fmt.Errorf("%d is left, of 10, after %d to %d calls", n, least, most)
					}
					return err
				},
				Seeds: 15,
			})
		})
	}
}

func stockOf(ctx context.Context, pool *pgxpool.Pool, sku string) (qty int, err error) {
	err = pool.QueryRow(ctx, "select qty from stock where sku = $1", sku).Scan(&qty)
	return qty, err
}

func TestGuides_NoDatabase(t *testing.T) {
	store := memory.NewStore()
	g := guardtest.New(t, store)
	require.NoError(t, guard.Do(t.Context(), g, "job/1", func(_ context.Context, tx *memory.Tx) error { return tx.Set("job/1", "done") }))
	require.Equal(t, "done", store.Read("job/1"))
}

// docs/audit.md

func printSales(ctx context.Context, pool *pgxpool.Pool, day time.Time) error {
	history, err := audit.Open(pool, "")
	if err != nil {
		return err
	}
	sales := audit.Filter{Resources: "sku/*", Since: day, Until: day.AddDate(0, 0, 1), Op: storage.OpRecord{Name: "sell"}}
	for op, err := range history.Operations(ctx, sales) {
		if err != nil {
			return err
		}
		fmt.Println(op.Entry.Grant.Resource, op.Entry.Seq, op.ID, op.Attrs["qty"]) // and the token, in op.Entry.Grant
	}
	return nil
}

func Example_history() {
	ctx := context.Background()
	g, pool, done := open(ctx)
	defer done()
	err := guard.Do(ctx, g, "sku/42", func(context.Context, pgx.Tx) error { return nil }, guard.OpID("order-1"), guard.OpName("sell"), guard.OpAttr("qty", "2"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(printSales(ctx, pool, time.Now().Add(-12*time.Hour)))
	// Output:
	// sku/42 2 order-1 2
	// <nil>
}

// docs/operate.md

func withMetrics(pool *pgxpool.Pool) (*fencekit.Client, error) {
	metrics, err := guardprometheus.NewObserver(prometheus.DefaultRegisterer)
	if err != nil {
		return nil, err
	}
	return fencekit.New(pool, &fencekit.Config{Guard: guard.Config{Observers: []*guard.Observer{metrics}}})
}

func TestGuides_ObservedGuardIsMade(t *testing.T) {
	pool := connect(t.Context())
	defer pool.Close()
	metered, err := withMetrics(pool)
	require.NoError(t, err)
	require.NoError(t, metered.Close(t.Context()))
}
