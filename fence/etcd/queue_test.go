package etcd

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/internal/session"
)

func narrow() *line {
	l := &Locker{closing: session.NewClosing(), lines: map[string]*line{}}
	l.cluster = &cluster.Cluster{Keys: cluster.Space{Prefix: "p", Mutex: true}}
	return l.enter("r")
}

func (ln *line) passOnLocked() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.passOn()
}

func TestLine_GivesPlacesInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := narrow()
		require.NoError(t, ln.wait(t.Context()))
		impatient, giveUp := context.WithCancel(t.Context())
		var served []int
		var gaveUp error
		for i := range 5 {
			go func() {
				if i == 1 {
					gaveUp = ln.wait(impatient)
				} else if ln.wait(t.Context()) == nil {
					served = append(served, i)
				}
			}()
			synctest.Wait()
		}
		giveUp()
		synctest.Wait()
		require.ErrorIs(t, gaveUp, context.Canceled)
		require.NotNil(t, ln.tryTake())
		for range 4 {
			ln.passOnLocked()
			synctest.Wait()
		}
		require.Equal(t, []int{0, 2, 3, 4}, served, "the one that gave up is passed over")
		require.NoError(t, ln.locker.closing.Close(t.Context(), 0, "", func(context.Context) error { return nil }))
		require.ErrorIs(t, ln.wait(t.Context()), fence.ErrClosed)
		ln.passOnLocked()
		require.Nil(t, ln.tryTake())
	})
}

func TestLine_APlaceThatComesTooLateIsPassedOn(t *testing.T) {
	ln := narrow()
	require.NoError(t, ln.wait(t.Context()))
	mine := make(chan struct{})
	ln.waiting = append(ln.waiting, mine)
	ln.passOnLocked()
	<-mine
	ln.mu.Lock()
	ln.giveUp(mine)
	ln.mu.Unlock()
	require.Nil(t, ln.tryTake())
}

// scene is a line without an etcd: the test says what is in the queue.
type scene struct {
	*line
	t       testing.TB
	session *session.Session[clientv3.LeaseID]
}

func newScene(t testing.TB) scene {
	l := newTestLocker(t, dial(t, "http://127.0.0.1:1"), fresh(t))
	return scene{l.enter("r"), t, startSession(t)}
}

func startSession(t testing.TB) *session.Session[clientv3.LeaseID] {
	t.Helper()
	s, err := session.Start(t.Context(), slowLeases{}, 9*time.Second, time.Second, func(*session.Session[clientv3.LeaseID], fence.LossReason) {})
	require.NoError(t, err)
	return s
}

func (s scene) position() *position {
	s.t.Helper()
	s.mu.Lock()
	s.places++
	s.mu.Unlock()
	s.locker.enter("r")
	return s.newPosition(s.session, nil)
}

// at returns a position whose key was written at a revision, directly behind the key with the create revision pred.
func (s scene) at(token fence.Token, pred int64) *position {
	s.t.Helper()
	p := s.position()
	p.written(token, 1, pred)
	return p
}

func (s scene) key(name string, created int64) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte(s.follower.Queue + name), CreateRevision: created, ModRevision: created}
}

func own(p *position) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte(p.Key()), CreateRevision: int64(p.token), ModRevision: int64(p.token)}
}

func (s scene) put(kv *mvccpb.KeyValue) {
	_ = s.follower.Events([]*mvccpb.Event{{Type: mvccpb.PUT, Kv: kv}})
}

func (s scene) deleted(kv *mvccpb.KeyValue, rev int64) {
	_ = s.follower.Events([]*mvccpb.Event{{Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{Key: kv.Key, ModRevision: rev}}})
}

func (s scene) list(rev int64, kvs ...*mvccpb.KeyValue) {
	_, _ = s.follower.Listed(s.follower.Gaps(), rev, kvs)
}

func (p *position) owns() bool {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return p.first && p.wanted()
}

func (p *position) seenGone() bool {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return p.asked
}

func TestLine_OwnsOnlyWhenAllSmallerRevisionsAreGone(t *testing.T) {
	s := newScene(t)
	p := s.at(10, 7)
	a, b := s.key("a", 5), s.key("b", 7)
	s.list(11, a, b, own(p), s.key("z", 11))
	require.False(t, p.owns())
	s.deleted(b, 12)
	require.False(t, p.owns(), "the next in line vanished, the holder is still there")
	s.deleted(a, 13)
	require.True(t, p.owns())
}

func TestLine_DecidesNothingBeforeTheFirstList(t *testing.T) {
	s := newScene(t)
	p := s.at(10, 5)
	s.deleted(s.key("a", 5), 12)
	require.False(t, p.owns())
	require.False(t, p.seenGone())
	s.list(11, s.key("a", 5), own(p))
	require.True(t, p.owns(), "the event was newer than the list")
}

// A list from before the key was written shows neither that it is gone, nor what is ahead.
func TestLine_DecidesNothingByWhatIsOlderThanTheKey(t *testing.T) {
	s := newScene(t)
	held := s.at(10, 0)
	p := s.at(20, 15) // behind another process's key, which the view doesn't show yet
	require.True(t, held.owns())
	held.end(fence.ErrReleased)
	require.False(t, p.owns())
	require.False(t, p.seenGone())
	s.put(s.key("a", 15))
	s.put(own(p))
	require.False(t, p.owns())
	s.deleted(s.key("a", 15), 21)
	require.True(t, p.owns())
}

func TestLine_PassesOnWithoutEtcdIfNoOtherIsBetween(t *testing.T) {
	s := newScene(t)
	first := s.at(10, 0)
	second, third := s.at(11, 10), s.at(14, 12)
	require.True(t, first.owns())
	require.False(t, second.owns(), "one holder at a time")
	first.end(fence.ErrReleased)
	require.True(t, second.owns())
	second.end(fence.ErrReleased)
	require.False(t, third.owns(), "another process's key is between")
}

// The order of the tokens is that of the grants (F1), whichever answer comes first.
func TestLine_GrantsInTheOrderOfTokens(t *testing.T) {
	s := newScene(t)
	held, early := s.at(10, 0), s.position()
	late := s.at(12, 11)
	held.end(fence.ErrReleased)
	s.list(12, &mvccpb.KeyValue{Key: []byte(early.Key()), CreateRevision: 11, ModRevision: 11}, own(late))
	require.False(t, late.owns(), "the answer for the key ahead is still under way")
	early.written(11, 1, 10)
	require.True(t, early.owns())
	require.False(t, late.owns())
	early.end(fence.ErrReleased)
	require.True(t, late.owns())
}

// What was lost may still be in etcd, where a new session's key is behind it.
func TestLine_DoesNotPassOnBehindOneThatIsLost(t *testing.T) {
	s := newScene(t)
	first, second := s.at(10, 0), s.position()
	first.sessionEnded(fence.LossExpired)
	second.written(11, 1, 10)
	require.False(t, second.owns())
}

// What was known under an earlier session may be of an etcd that was restored since, whose revisions are lower.
func TestLine_KnowsNothingFromBeforeItsSession(t *testing.T) {
	s := newScene(t)
	before := s.at(100, 0)
	before.end(fence.ErrReleased)
	before.settle(removed)
	s.session = startSession(t)
	p := s.at(60, 50)
	s.list(60, s.key("a", 50), own(p))
	require.False(t, p.owns())
	s.deleted(s.key("a", 50), 61)
	require.True(t, p.owns())
	p.sessionEnded(fence.LossWentBack)
	s.session = startSession(t)
	require.False(t, s.at(120, 100).owns(), "behind another process's key of an old own token")
}

func TestLine_ALateAnswerOfAnEarlierSessionHidesNothing(t *testing.T) {
	s := newScene(t)
	before := s.position()
	s.session = startSession(t)
	p := s.at(60, 50)
	before.written(100, 1, 90)
	s.list(70, own(p))
	require.True(t, p.owns())
}

func TestLine_NoticesAnotherKeyOfTheSameName(t *testing.T) {
	listed := newScene(t)
	p := listed.at(10, 5)
	listed.list(20, &mvccpb.KeyValue{Key: []byte(p.Key()), CreateRevision: 15, ModRevision: 15})
	require.True(t, p.seenGone())
	require.False(t, p.owns())

	watched := newScene(t)
	p = watched.at(10, 0)
	kv := own(p)
	watched.deleted(kv, 11)
	require.True(t, p.seenGone())
}

func TestLine_HasAtMostAQuantumOfPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := narrow()
		ln.locker.cluster.Keys.Mutex = false
		var queued atomic.Int64
		for range quantum + 5 {
			go func() {
				if ln.wait(t.Context()) == nil {
					queued.Add(1)
				}
			}()
		}
		synctest.Wait()
		require.EqualValues(t, quantum, queued.Load())
		for range 5 {
			ln.passOnLocked()
		}
		synctest.Wait()
	})
}
