package guardtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

func claimParts[Tx any]() []part[Tx] {
	return []part[Tx]{
		{"Claim_FirstMovesTheFence", claimFirst[Tx]},
		{"Claim_OfTheHolderIsIdempotent", claimIdempotent[Tx]},
		{"Claim_RejectsLowerToken", claimLower[Tx]},
		{"Claim_RejectsLowerEpoch", claimLowerEpoch[Tx]},
		{"Claim_HigherEpochBeatsHigherToken", claimHigherEpoch[Tx]},
		{"Claim_RejectsEqualTokenOfAnotherHolder", claimCollision[Tx]},
		{"Claim_RejectsAHistoryThatLacksWhatWasSeen", claimUnseen[Tx]},
		{"Claim_RejectsInvalidGrants", claimInvalid[Tx]},
		{"Claim_KeepsOddNamesApart", claimOddNames[Tx]},
		{"Claim_CancelledDoesNothing", claimCancelled[Tx]},
		{"Claim_OfSeveral", claimSeveral[Tx]},
		{"Claim_OfSeveralClaimsTheGoodOnes", claimGoodOnes[Tx]},
		{"Claim_RejectsBadSets", claimBadSets[Tx]},
		{"Claim_ConcurrentOfSeveralNeverDeadlocks", claimCrossing[Tx]},
	}
}

func claimFirst[Tx any](r *run[Tx]) {
	c := r.claim(grant(7))
	if c.Seq != 1 || c.Tx == 0 {
		r.Fatalf("the first claim is at %+v, want sequence number 1 and a transaction", c.Position)
	}
	r.at(c, storage.KindClaim)
}

func claimIdempotent[Tx any](r *run[Tx]) {
	first := r.claim(grant(7))
	if again := r.claim(grant(7)); again != first {
		r.Fatalf("a repeated claim is %+v, want %+v", again, first)
	}
	moved := r.write(r.set(key, 1), first)
	if again := r.claim(grant(7)); again != moved {
		r.Fatalf("a claim after a write is %+v, want %+v", again, moved)
	}
	if n := len(r.entries(resource)); n != 2 {
		r.Fatalf("%d entries, want a claim and a write", n)
	}
}

func claimLower[Tx any](r *run[Tx]) {
	holder := r.claim(grant(7))
	_, err := r.Store.Claim(r.ctx, storage.Claim{Grant: grant(6)})
	rejection := r.rejected(err, grant(6), storage.ReasonStale)
	var stale *guard.RejectedError
	if !errors.As(err, &stale) {
		r.Fatalf("want a *guard.RejectedError, got %T", err)
	}
	if rejection.Current != grant(7) || rejection.Stage != storage.StageClaim {
		r.Fatalf("rejected by %v at stage %s, want %v at stage claim", rejection.Current, rejection.Stage, grant(7))
	}
	r.at(holder, storage.KindClaim)
	r.write(r.set(key, 1), holder)
}

func claimLowerEpoch[Tx any](r *run[Tx]) {
	other := grantOf("another resource", 1)
	other.Epoch = 3
	r.claim(other)
	_, err := r.Store.Claim(r.ctx, storage.Claim{Grant: grant(100)})
	rejection := r.rejected(err, grant(100), storage.ReasonEpochBehind)
	if rejection.Current.Epoch != 3 {
		r.Fatalf("the error says epoch %d, want the highest seen, 3", rejection.Current.Epoch)
	}
	if n := len(r.entries(resource)); n != 0 {
		r.Fatalf("%d entries after a rejected first claim", n)
	}
}

func claimHigherEpoch[Tx any](r *run[Tx]) {
	old := r.claim(grant(100))
	next := grant(5)
	next.Epoch = 2
	holder := r.claim(next)
	_, err := r.transact(r.ctx, r.set(key, 1), old)
	r.rejected(err, old.Grant, storage.ReasonStale)
	_, err = r.Store.Claim(r.ctx, storage.Claim{Grant: grant(101)})
	r.rejected(err, grant(101), storage.ReasonEpochBehind)
	r.write(r.set(key, 2), holder)
	r.holds(key, 2)
}

func claimCollision[Tx any](r *run[Tx]) {
	holder := r.claim(grant(7))
	other := grant(7)
	other.Holder = "another holder"
	_, err := r.Store.Claim(r.ctx, storage.Claim{Grant: other})
	if rejection := r.rejected(err, other, storage.ReasonCollision); rejection.Current != holder.Grant {
		r.Fatalf("rejected by %v, want %v", rejection.Current, holder.Grant)
	}
	forged := holder
	forged.Grant = other
	_, err = r.transact(r.ctx, r.set(key, 1), forged)
	r.rejected(err, other, storage.ReasonCollision)
	r.holds(key, 0)
	r.write(r.set(key, 2), holder)
}

// claimUnseen: the position that a claimant has seen is compared with the history, wherever the fence
// is by then. A rejected claim leaves the fence where it is.
func claimUnseen[Tx any](r *run[Tx]) {
	before := r.claim(grant(5))
	seen := r.write(r.set(key, 1), before)
	another := storage.Claim{Grant: grant(7), Position: storage.Position{Seq: seen.Seq, Tx: before.Tx}}
	ahead := storage.Claim{Grant: grant(7), Position: storage.Position{Seq: seen.Seq + 2, Tx: seen.Tx}}
	for _, c := range []storage.Claim{another, ahead} {
		_, err := r.Store.Claim(r.ctx, c)
		rejection := r.rejected(err, c.Grant, storage.ReasonWentBack)
		if rejection.Stage != storage.StageClaim || rejection.Current != grant(5) || rejection.RecordErr != nil {
			r.Fatalf("a claim that has seen what isn't there: %+v", rejection)
		}
		r.at(seen, storage.KindWrite)
	}
	another.Grant = grant(5) // which has the fence
	_, err := r.Store.Claim(r.ctx, another)
	r.rejected(err, another.Grant, storage.ReasonWentBack)
	another.Grant = grant(4)
	_, err = r.Store.Claim(r.ctx, another)
	r.rejected(err, another.Grant, storage.ReasonStale)

	for i, position := range []storage.Position{before.Position, seen.Position, {}} {
		c := storage.Claim{Grant: grant(fence.Token(10 + i)), Position: position}
		if _, err := r.Store.Claim(r.ctx, c); err != nil {
			r.Fatalf("a claim that has seen %+v, which is there: %v", position, err)
		}
	}
	claims, err := r.Store.Claim(r.ctx, storage.Claim{Grant: grantOf("a", 20)}, storage.Claim{Grant: grant(20), Position: ahead.Position})
	if r.rejected(err, grant(20), storage.ReasonWentBack); len(claims) != 2 || claims[0].Seq != 1 || claims[1] != (storage.Claim{}) {
		r.Fatalf("one of two has seen what isn't there: %+v", claims)
	}
}

func claimInvalid[Tx any](r *run[Tx]) {
	for part, spoil := range map[string]func(*fence.Grant){
		"no token":           func(g *fence.Grant) { g.Token = 0 },
		"negative token":     func(g *fence.Grant) { g.Token = -1 },
		"token too high":     func(g *fence.Grant) { g.Token = fence.MaxToken + 1 },
		"no epoch":           func(g *fence.Grant) { g.Epoch = 0 },
		"epoch too high":     func(g *fence.Grant) { g.Epoch = fence.MaxEpoch + 1 },
		"no holder":          func(g *fence.Grant) { g.Holder = "" },
		"long holder":        func(g *fence.Grant) { g.Holder = strings.Repeat("x", fence.MaxHolderLen+1) },
		"control character":  func(g *fence.Grant) { g.Holder = "a\x00b" },
		"no resource":        func(g *fence.Grant) { g.Resource = "" },
		"long resource":      func(g *fence.Grant) { g.Resource = strings.Repeat("x", fence.MaxResourceLen+1) },
		"resource not UTF-8": func(g *fence.Grant) { g.Resource = "\xff" },
	} {
		g := grant(7)
		spoil(&g)
		if _, err := r.Store.Claim(r.ctx, storage.Claim{Grant: g}); !errors.As(err, new(*fence.InvalidGrantError)) {
			r.Fatalf("%s: want a *fence.InvalidGrantError, got: %v", part, err)
		}
	}
	if n := len(r.entries(resource)); n != 0 {
		r.Fatalf("%d entries after invalid claims", n)
	}
	r.claim(grant(1))
}

func claimOddNames[Tx any](r *run[Tx]) {
	names := []string{
		"a", "a/", "a/b", "A", " a", "ä", "a\u0308", "日本語", `"`, "'", "''", `\`, `\\`, "%", "%s", "%25",
		"a_b", "a-b", "$1", "?", "; --", strings.Repeat("x", fence.MaxResourceLen), strings.Repeat("x", fence.MaxResourceLen-1) + "y",
	}
	for i, name := range names {
		g := grantOf(name, fence.Token(len(names)-i)) // lower than that of the one before
		if len(name) <= fence.MaxHolderLen {
			g.Holder = name
		}
		c := r.claim(g)
		if c.Seq != 1 {
			r.Fatalf("%q shares its fence with a name before it", name)
		}
		r.write(r.set(key, int64(i+1)), c)
		r.holds(key, int64(i+1))
		if entries := r.entries(name); len(entries) != 2 || entries[1].Grant != g {
			r.Fatalf("history of %q: %+v", name, entries)
		}
	}
}

func claimCancelled[Tx any](r *run[Tx]) {
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	if _, err := r.Store.Claim(ctx, storage.Claim{Grant: grant(7)}); !errors.Is(err, context.Canceled) {
		r.Fatalf("want context.Canceled, got: %v", err)
	}
	if n := len(r.entries(resource)); n != 0 {
		r.Fatalf("a cancelled claim left %d entries", n)
	}
}

// claimSeveral: some are new, one was claimed before, one by this very grant.
func claimSeveral[Tx any](r *run[Tx]) {
	r.claim(grantOf("d", 1))
	mine := r.write(r.set(key, 1), r.claim(grantOf("b", 6)))
	claims := r.claimAll(grantOf("c", 7), grantOf("d", 8), grantOf("a", 5), mine.Grant)
	if claims[3] != mine {
		r.Fatalf("a repeated claim among others is %+v, want %+v", claims[3], mine)
	}
	for i, seq := range []int64{1, 2, 1} {
		r.at(claims[i], storage.KindClaim)
		if claims[i].Seq != seq {
			r.Fatalf("%+v, want sequence number %d", claims[i], seq)
		}
	}
	moved, err := r.transact(r.ctx, r.set(key, 2), claims...)
	r.noError(err)
	r.sameLength(moved, claims)
	again := r.claimAll(grantOf("c", 7), grantOf("d", 8), grantOf("a", 5), mine.Grant)
	if !slices.Equal(again, moved) {
		r.Fatalf("claims after a write are %+v, want %+v", again, moved)
	}
}

func claimGoodOnes[Tx any](r *run[Tx]) {
	b, d := r.claim(grantOf("b", 9)), r.claim(grantOf("d", 9))
	claims, err := r.Store.Claim(r.ctx, storage.Claim{Grant: grantOf("d", 4)}, storage.Claim{Grant: grantOf("a", 5)}, storage.Claim{Grant: grantOf("b", 6)}, storage.Claim{Grant: grantOf("c", 7)})
	r.sameLength(claims, make([]storage.Claim, 4))
	if claims[0] != (storage.Claim{}) || claims[2] != (storage.Claim{}) {
		r.Fatalf("the rejected grants have the claims %+v and %+v", claims[0], claims[2])
	}
	r.at(b, storage.KindClaim)
	r.at(d, storage.KindClaim)
	r.at(claims[1], storage.KindClaim)
	r.at(claims[3], storage.KindClaim)
	for _, g := range []fence.Grant{grantOf("b", 6), grantOf("d", 4)} {
		if records := r.rejections(g.Resource); len(records) != 1 || records[0].Grant != g || records[0].Stage != storage.StageClaim || records[0].Reason != storage.ReasonStale {
			r.Fatalf("the rejection of %v was recorded as %+v", g, records)
		}
		if !wrapsRejection(err, g) {
			r.Fatalf("the error lacks the rejection of %v: %v", g, err)
		}
	}
	_, err = r.transact(r.ctx, r.set(key, 1), claims[1], claims[3])
	r.noError(err)
}

// wrapsRejection reports whether err wraps a rejection of g.
func wrapsRejection(err error, g fence.Grant) bool {
	switch e := err.(type) {
	case *guard.RejectedError:
		return e.Grant == g
	case interface{ Unwrap() error }:
		return wrapsRejection(e.Unwrap(), g)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return wrapsRejection(err, g) })
	}
	return false
}

func claimBadSets[Tx any](r *run[Tx]) {
	for what, grants := range map[string][]fence.Grant{
		"none":                  {},
		"one resource twice":    {grantOf("a", 5), grant(7), grantOf("a", 6)},
		"an invalid one":        {grantOf("a", 5), {Resource: resource, Epoch: 1, Token: 7}},
		"the same grant twice ": {grant(7), grant(7)},
	} {
		if claims, err := r.Store.Claim(r.ctx, unseen(grants)...); !errors.Is(err, fence.ErrInvalid) || claims != nil {
			r.Fatalf("%s: want fence.ErrInvalid, got %+v: %v", what, claims, err)
		}
	}
	if n := len(r.entries(resource)) + len(r.entries("a")); n != 0 {
		r.Fatalf("%d entries after bad claims", n)
	}
}

// claimCrossing: claims of the same resources, named in all orders, for the first time and
// again. A claim is rejected as stale, or else claims.
func claimCrossing[Tx any](r *run[Tx]) {
	const workers, rounds = 4, 5
	names := []string{"a", "b", "c", "d", "e"}
	errs := make(chan error, workers*rounds)
	var tokens atomic.Int64
	var done sync.WaitGroup
	for worker := range workers {
		done.Go(func() {
			for range rounds {
				token := fence.Token(tokens.Add(1))
				var grants []fence.Grant
				for i := range names {
					grants = append(grants, grantOf(names[(i*(worker+1)+worker)%len(names)], token))
				}
				_, err := r.Store.Claim(r.ctx, unseen(grants)...)
				errs <- err
			}
		})
	}
	done.Wait()
	close(errs)
	for err := range errs {
		if err != nil && !errors.Is(err, guard.ErrStaleToken) {
			r.Fatalf("unexpected error: %v", err)
		}
	}
	for _, name := range names {
		r.monotone(r.entries(name))
		if last := r.last(name); last.Grant.Token != workers*rounds {
			r.Fatalf("%s is at token %d", name, last.Grant.Token)
		}
	}
}
