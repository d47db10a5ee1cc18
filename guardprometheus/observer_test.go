package guardprometheus_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/guardprometheus"
	"github.com/fencekit/fencekit/internal/telemetry"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is one lock service and one store, for Guards whose metrics one registry has.
type world struct {
	testing.TB
	locks    *guardtest.LockService
	store    *memory.Store
	registry *prometheus.Registry
	observer *guard.Observer
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t, guardtest.NewLockService(), memory.NewStore(), prometheus.NewPedanticRegistry(), nil}
	var err error
	w.observer, err = guardprometheus.NewObserver(w.registry)
	require.NoError(t, err)
	return w
}

func (w *world) process(label string, observers ...*guard.Observer) *guard.Guard[*memory.Tx] {
	w.Helper()
	g, err := guard.New(w.locks.NewLocker(label), w.store, &guard.Config{Observers: observers})
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, g.Close(context.Background())) })
	return g
}

// requireValues requires the values of all series of a counter or a gauge that are not 0, by their
// labels, and of a histogram the number of observations and their sum.
func (w *world) requireValues(name string, want map[string]float64) {
	w.Helper()
	families, err := w.registry.Gather()
	require.NoError(w, err)
	got := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				labels += l.GetName() + "=" + l.GetValue() + " "
			}
			if h := m.GetHistogram(); h != nil {
				got[labels+"count"], got[labels+"sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
			} else if v := m.GetCounter().GetValue() + m.GetGauge().GetValue(); v != 0 {
				got[labels] = v
			}
		}
	}
	require.Equal(w, want, got, name)
}

var errShop = errors.New("sold out")

func put(_ context.Context, tx *memory.Tx) error { return tx.Set("k", "v") }

func sleeping(d time.Duration) func(context.Context, *memory.Tx) error {
	return func(ctx context.Context, tx *memory.Tx) error {
		time.Sleep(d)
		return put(ctx, tx)
	}
}

// Every event is counted once, and every duration is that of the bubble's clock.
func TestObserver_CountsWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.process("a", w.observer), w.process("b", w.observer)
		w.succeed(t.Context(), a)
		w.wait(t.Context(), a, b)
		w.beRejected(t.Context(), a)
		w.fail(t.Context(), b)

		require.NoError(t, a.Close(t.Context()))
		require.NoError(t, b.Close(t.Context()))
		synctest.Wait()
		w.requireValues("fence_locks_held", map[string]float64{})
		w.requireValues("fence_acquires_total", map[string]float64{"class=sku ": 3, "class=order ": 2, "class=lot ": 5})
		w.requireValues("fence_leases_lost_total", map[string]float64{"class=sku in_use=true reason=expired ": 1})
		w.requireValues("guard_rejections_total", map[string]float64{"class=sku reason=stale ": 1})
		w.requireValues("guard_writes_total", map[string]float64{
			"class=sku outcome=committed ": 2, "class=sku outcome=failed ": 1, "class=sku outcome=rejected ": 1,
			"class=order outcome=committed ": 2, "class=order outcome=repeated ": 1,
			"class=lot outcome=committed ": 3, "class=lot outcome=unknown ": 1, "class=lot outcome=panicked ": 1,
		})
		w.requireValues("guard_reads_total", map[string]float64{"class=sku outcome=committed ": 1})
		w.requireValues("guard_batch_size", map[string]float64{
			"class=sku count": 5, "class=sku sum": 5, "class=order count": 3, "class=order sum": 3, "class=lot count": 5, "class=lot sum": 5,
		})
	})
}

// succeed makes a call of each kind, all of which end at once.
func (w *world) succeed(ctx context.Context, a *guard.Guard[*memory.Tx]) {
	require.NoError(w, guard.Do(ctx, a, "sku/1", put))
	require.ErrorIs(w, guard.Do(ctx, a, "sku/1", func(context.Context, *memory.Tx) error { return errShop }), errShop)
	require.NoError(w, guard.Do(ctx, a, "sku/1", func(context.Context, *memory.Tx) error { return nil }, guard.ReadOnly()))
	for range 2 {
		_, err := guard.Value(ctx, a, "order/1", func(context.Context, *memory.Tx) (int, error) { return 1, nil }, guard.Once("key", nil))
		require.NoError(w, err)
	}
	require.NoError(w, guard.Do(ctx, a, []string{"sku/2", "sku/3", "order/2"}, put), "counted once for each class")
	w.requireValues("fence_locks_held", map[string]float64{"class=sku ": 3, "class=order ": 2})
}

// wait has a call of each process wait for one that takes 2 s.
func (w *world) wait(ctx context.Context, a, b *guard.Guard[*memory.Tx]) {
	ended := make(chan error)
	go func() { ended <- guard.Do(ctx, a, "lot/1", sleeping(2*time.Second)) }()
	synctest.Wait()
	go func() { ended <- guard.Do(ctx, a, "lot/1", put) }()
	go func() { ended <- guard.Do(ctx, b, "lot/1", put) }()
	synctest.Wait()
	w.requireValues("fence_queue_length", map[string]float64{"class=lot queue=lock_service ": 1, "class=lot queue=process ": 1})
	for range 3 {
		require.NoError(w, <-ended)
	}
	w.requireValues("fence_queue_length", map[string]float64{})
	for _, name := range []string{"guard_takeover_duration_seconds", "fence_acquire_duration_seconds"} {
		w.requireValues(name, map[string]float64{
			"class=sku count": 3, "class=sku sum": 0, "class=order count": 2, "class=order sum": 0, "class=lot count": 3, "class=lot sum": 2, // b waited for a, and then a had to ask again
		})
	}
}

// beRejected has a holder lose its lease, and a later grant claim, while its function runs.
func (w *world) beRejected(ctx context.Context, a *guard.Guard[*memory.Tx]) {
	const lag = 7
	require.ErrorIs(w, guard.Do(ctx, a, "sku/1", func(ctx context.Context, tx *memory.Tx) error {
		require.True(w, w.locks.Lose("sku/1"))
		synctest.Wait() // the loss is observed while the call uses the lock
		ctx = context.WithoutCancel(ctx)
		old := guard.Grants(ctx)[0]
		_, err := w.store.Claim(ctx, storage.Claim{Grant: fence.Grant{Resource: "sku/1", Epoch: old.Epoch, Token: old.Token + lag, Holder: "other"}})
		require.NoError(w, err)
		return put(ctx, tx)
	}), guard.ErrStaleToken)
	w.requireValues("guard_token_lag", map[string]float64{"class=sku count": 1, "class=sku sum": lag})
}

// fail makes a call whose outcome stays unknown, and one whose function panics.
func (w *world) fail(ctx context.Context, b *guard.Guard[*memory.Tx]) {
	w.store.SetFaults(memory.Faults{
		Commit:  func(storage.InDoubt) memory.Fate { return memory.ReplyLost },
		Resolve: func(storage.InDoubt) error { return errShop },
	})
	require.ErrorIs(w, guard.Do(ctx, b, "lot/2", put), guard.ErrUnknownOutcome)
	w.store.SetFaults(memory.Faults{})
	require.Panics(w, func() { _ = guard.Do(ctx, b, "lot/3", func(context.Context, *memory.Tx) error { panic("boom") }) })
}

func TestObserver_NamesFollowTheConventions(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, guard.Do(t.Context(), w.process("a", w.observer), "sku/1", put))
	problems, err := testutil.GatherAndLint(w.registry)
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestNewObserver_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := guardprometheus.NewObserver(nil)
	require.ErrorIs(t, err, guard.ErrInvalid)

	registry := prometheus.NewRegistry()
	taken := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "guard_rejections_total", Help: telemetry.Definitions[telemetry.Rejections].Help}, []string{"class", "reason"})
	require.NoError(t, registry.Register(taken))
	_, err = guardprometheus.NewObserver(registry)
	require.ErrorContains(t, err, "guard_rejections_total")
	require.True(t, registry.Unregister(taken))
	_, err = guardprometheus.NewObserver(registry)
	require.NoError(t, err, "the failed one has left nothing registered")
	_, err = guardprometheus.NewObserver(registry)
	require.ErrorAs(t, err, new(prometheus.AlreadyRegisteredError))
}
