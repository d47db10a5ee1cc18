package service

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

var (
	deductions = flag.Int("deductions", 600, "how many deductions TestHTTP_… asks for")
	seed       = flag.Uint64("seed", 1, "of the faults of TestHTTP_… and TestChaos_…, not of the order in which things happen")
)

const (
	clients  = 16
	products = 5
)

// client sends each of its requests until it is answered for good.
type client struct {
	paths  []*service // ways to the servers, through cutters
	random *rand.Rand
	shop   *shop
}

// shop is what all clients have been told.
type shop struct {
	mu       sync.Mutex
	answers  map[string]reply // by key: the first that arrived
	orders   map[string]order
	attempts int
	statuses map[int]int
	marks    map[int]chan struct{} // closed when so many keys are answered
	replaced chan struct{}         // closed when all servers are; the last keys wait for it
}

// order is a request that a key stands for.
type order struct {
	sku string
	qty int
}

func (s *shop) note(key string, o order, answer reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[key], s.orders[key] = answer, o
	if mark := s.marks[len(s.answers)]; mark != nil {
		close(mark)
	}
}

func (s *shop) attempt(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++
	s.statuses[status]++
}

// run asks for one deduction until there is an answer, and sometimes once more
// after that.
func (c *client) run(key string, o order) {
	answer, ok := c.until(key, o)
	if !ok {
		return
	}
	c.shop.note(key, o, answer)
	if c.random.IntN(10) > 0 {
		return
	}
	again, ok := c.until(key, o)
	if ok && (again.status != answer.status || again.body != answer.body) {
		c.paths[0].Errorf("key %s was answered with %d %s, and later with %d %s", key, answer.status, answer.body, again.status, again.body)
	}
}

// until sends a request, each time to any of the servers, until its answer is final.
func (c *client) until(key string, o order) (reply, bool) {
	for {
		s := c.paths[c.random.IntN(len(c.paths))]
		r := s.withPath(s.order(key, fmt.Sprintf(`{"qty":%d}`, o.qty)), "/v1/skus/"+o.sku+"/deduct")
		answer, err := s.try(r)
		c.shop.attempt(answer.status)
		switch {
		case err != nil, answer.status == http.StatusServiceUnavailable:
			if s.Context().Err() != nil {
				return reply{}, false
			}
			time.Sleep(time.Duration(c.random.IntN(20)) * time.Millisecond) // or all come again at once
		case answer.status == http.StatusOK, answer.status == http.StatusConflict:
			return answer, true
		default:
			s.Errorf("key %s: %d %s", key, answer.status, answer.body)
			return reply{}, false
		}
	}
}

// Clients that retry with the same key until they are answered, through proxies
// that cut a fifth of the replies, with two servers, each of which is killed and
// replaced on the way: every key took effect at most once, and exactly once when it
// was acknowledged.
//
//	go test ./examples/inventory/service -run TestHTTP -v -timeout 30m -args -deductions 10000
func TestHTTP_EveryKeyTakesEffectExactlyOnce(t *testing.T) {
	t.Parallel()
	dsn, pool := stocked(t)
	stockProducts(t, pool, *deductions)
	cfg := config(t, dsn)
	servers := []*child{startChild(t, cfg), startChild(t, cfg)}
	var cutters []*cutter
	paths := make([]*service, len(servers))
	for i, server := range servers {
		c, url := startCutter(t, *seed+uint64(i), server.url)
		cutters = append(cutters, c)
		paths[i] = serviceAt(t, url)
	}
	s := &shop{answers: map[string]reply{}, orders: map[string]order{}, statuses: map[int]int{}, marks: map[int]chan struct{}{}, replaced: make(chan struct{})}
	kills := []int{*deductions / 3, 2 * *deductions / 3}
	for _, at := range kills {
		s.marks[at] = make(chan struct{})
	}
	start := time.Now()
	finished := startClients(s, paths)
	t.Cleanup(func() { <-finished })
	allReplaced := sync.OnceFunc(func() { close(s.replaced) })
	defer allReplaced()
	for i, at := range kills {
		select {
		case <-s.marks[at]:
		case <-finished:
			require.Fail(t, "the clients ended before the server was to be killed")
		}
		require.NoError(t, servers[i].process.Kill())
		servers[i].await()
		servers[i] = startChild(t, cfg)
		cutters[i].target.Store(&servers[i].url)
	}
	allReplaced()
	<-finished
	took := time.Since(start)
	require.False(t, t.Failed())

	check(t, pool, s)
	reportCuts(t, cutters)
	t.Logf("%d keys in %.1f s (%.0f/s), %d attempts by %d clients, by status (0: cut): %v",
		len(s.answers), took.Seconds(), float64(len(s.answers))/took.Seconds(), s.attempts, clients, s.statuses)
}

// startClients has all keys asked for, and closes finished after that.
func startClients(s *shop, paths []*service) (finished chan struct{}) {
	var done sync.WaitGroup
	for n := range clients {
		c := &client{paths: paths, random: rand.New(rand.NewPCG(*seed, uint64(n)+100)), shop: s}
		done.Go(func() {
			for k := n; k < *deductions; k += clients {
				if k >= *deductions*5/6 {
					<-s.replaced // or a server that is slow to start would find nothing left to do
				}
				c.run(fmt.Sprint("key-", k), order{product(k % products), 1 + c.random.IntN(3)})
			}
		})
	}
	finished = make(chan struct{})
	go func() {
		done.Wait()
		close(finished)
	}()
	return finished
}

// reportCuts says what was lost, and requires that something of each kind was.
func reportCuts(t *testing.T, cutters []*cutter) {
	t.Helper()
	lost := 0
	for i, c := range cutters {
		t.Logf("server %d: %v, %d deductions whose reply was cut", i+1, c.fates, c.lost)
		lost += c.lost
		for _, f := range []fate{passed, cutRequest, hungUp, cutReply, cutHalfReply} {
			require.NotZero(t, c.fates[f], f)
		}
	}
	require.NotZero(t, lost, "no deduction was in danger of being repeated")
}

func product(n int) string { return fmt.Sprint("chair-", n) }

// stockProducts stocks plenty of all products but the first, which won't do for
// all orders.
func stockProducts(t *testing.T, pool *pgxpool.Pool, orders int) {
	t.Helper()
	perProduct := 2 * orders / products // 2 is the mean of what is asked for
	for n := range products {
		quantity := 2 * perProduct
		if n == 0 {
			quantity = perProduct / 2
		}
		const lots = 10
		_, err := pool.Exec(t.Context(), "insert into lot (sku, received, quantity) select $1, date '2026-01-01' + n, $2 from generate_series(1, $3) n",
			product(n), quantity/lots+1, lots)
		require.NoError(t, err)
	}
}
