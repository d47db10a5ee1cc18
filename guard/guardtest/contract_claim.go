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
		{name: "Claim_OfTheHolderIsIdempotent", run: claimIdempotent[Tx]},
		{name: "Claim_RejectsLowerToken", run: claimLower[Tx]},
		{name: "Claim_HigherEpochBeatsHigherToken", run: claimHigherEpoch[Tx]},
		{name: "Claim_RejectsEqualTokenOfAnotherHolder", run: claimCollision[Tx]},
		{name: "Claim_RejectsAHistoryThatLacksWhatWasSeen", run: claimUnseen[Tx]},
		{name: "Claim_RejectsWhatIsInvalid", run: claimInvalid[Tx]},
		{name: "Claim_KeepsOddNamesApart", run: claimOddNames[Tx]},
		{name: "Claim_CancelledClaimsNothing", run: claimCancelled[Tx]},
		{name: "Claim_OfSeveralClaimsTheGoodOnes", run: claimSeveral[Tx]},
		{name: "Claim_ConcurrentOnesLoseNothing", run: claimConcurrent[Tx]},
	}
}

func claimIdempotent[Tx any](r *run[Tx]) {
	first := r.claim(grant(7))
	r.check(first.Seq == 1 && first.Tx != 0, "the first claim is at %+v, want sequence number 1 and a transaction", first.Position)
	r.at(first, storage.KindClaim)
	again := r.claim(grant(7))
	r.check(again == first, "a repeated claim is %+v, want %+v", again, first)
	moved := r.write(r.set(key, 1), first)
	again = r.claim(grant(7))
	r.check(again == moved, "a claim after a write is %+v, want %+v", again, moved)
	r.at(moved, storage.KindWrite)
}

func claimLower[Tx any](r *run[Tx]) {
	holder := r.claim(grant(7))
	_, err := r.Store.Claim(r.ctx, unseen(grant(6))...)
	rejection := r.rejected(err, grant(6), storage.ReasonStale)
	r.check(rejection.Current == grant(7) && rejection.Stage == storage.StageClaim,
		"rejected by %v at stage %s, want %v at stage claim", rejection.Current, rejection.Stage, grant(7))
	r.untouched(holder)
}

// The epoch is that of the database, whichever resource has raised it.
func claimHigherEpoch[Tx any](r *run[Tx]) {
	old := r.claim(grant(100))
	next, other := grant(5), grantOf("another resource", 1)
	next.Epoch, other.Epoch = 3, 3
	r.claim(other)
	for _, g := range []fence.Grant{grant(101), grantOf("a third one", 100)} {
		_, err := r.Store.Claim(r.ctx, unseen(g)...)
		rejection := r.rejected(err, g, storage.ReasonEpochBehind)
		r.check(rejection.Current.Epoch == 3, "the error says epoch %d, want the highest seen, 3", rejection.Current.Epoch)
	}
	r.check(len(r.entries("a third one")) == 0, "a rejected first claim has an entry")
	holder := r.claim(next)
	_, err := r.transact(r.ctx, r.set(key, 1), old)
	r.rejected(err, old.Grant, storage.ReasonStale)
	r.untouched(holder)
}

func claimCollision[Tx any](r *run[Tx]) {
	holder := r.claim(grant(7))
	forged := holder
	forged.Grant.Holder = "another holder"
	_, err := r.Store.Claim(r.ctx, unseen(forged.Grant)...)
	rejection := r.rejected(err, forged.Grant, storage.ReasonCollision)
	r.check(rejection.Current == holder.Grant, "rejected by %v, want %v", rejection.Current, holder.Grant)
	_, err = r.transact(r.ctx, r.set(key, 1), forged)
	r.rejected(err, forged.Grant, storage.ReasonCollision)
	r.untouched(holder)
}

func claimUnseen[Tx any](r *run[Tx]) {
	before := r.claim(grant(5))
	seen := r.write(r.set(key, 1), before)
	another := storage.Position{Seq: seen.Seq, Tx: before.Tx}
	ahead := storage.Position{Seq: seen.Seq + 2, Tx: seen.Tx}
	for _, lost := range []struct {
		position storage.Position
		token    fence.Token
		want     storage.Reason
	}{
		{another, 7, storage.ReasonWentBack}, {ahead, 7, storage.ReasonWentBack},
		{another, 5, storage.ReasonWentBack},
		{another, 4, storage.ReasonStale},
	} {
		_, err := r.Store.Claim(r.ctx, storage.Claim{Grant: grant(lost.token), Position: lost.position})
		rejection := r.rejected(err, grant(lost.token), lost.want)
		r.check(rejection.Stage == storage.StageClaim && rejection.Current == grant(5), "a claim that has seen what isn't there: %+v", rejection)
		r.at(seen, storage.KindWrite)
	}
	for i, position := range []storage.Position{before.Position, seen.Position, {}} {
		_, err := r.Store.Claim(r.ctx, storage.Claim{Grant: grant(fence.Token(10 + i)), Position: position})
		r.check(err == nil, "a claim that has seen %+v, which is there: %v", position, err)
	}
	claims, err := r.Store.Claim(r.ctx, storage.Claim{Grant: grantOf("a", 20)}, storage.Claim{Grant: grant(20), Position: ahead})
	r.rejected(err, grant(20), storage.ReasonWentBack)
	r.check(len(claims) == 2 && claims[0].Seq == 1 && claims[1] == storage.Claim{}, "one of two has seen what isn't there: %+v", claims)
}

func claimInvalid[Tx any](r *run[Tx]) {
	long := strings.Repeat("x", max(fence.MaxHolderLen, fence.MaxResourceLen)+1)
	for what, grants := range map[string][]fence.Grant{
		"no token":             {{Resource: resource, Epoch: 1, Holder: "h"}},
		"negative token":       {{Resource: resource, Epoch: 1, Token: -1, Holder: "h"}},
		"token too high":       {{Resource: resource, Epoch: 1, Token: fence.MaxToken + 1, Holder: "h"}},
		"no epoch":             {{Resource: resource, Token: 7, Holder: "h"}},
		"epoch too high":       {{Resource: resource, Epoch: fence.MaxEpoch + 1, Token: 7, Holder: "h"}},
		"no holder":            {{Resource: resource, Epoch: 1, Token: 7}},
		"long holder":          {{Resource: resource, Epoch: 1, Token: 7, Holder: long}},
		"control character":    {{Resource: resource, Epoch: 1, Token: 7, Holder: "a\x00b"}},
		"no resource":          {grantOf("", 7)},
		"long resource":        {grantOf(long, 7)},
		"resource not UTF-8":   {grantOf("\xff", 7)},
		"an invalid one":       {grantOf("a", 5), grant(0)},
		"none":                 {},
		"one resource twice":   {grantOf("a", 5), grant(7), grantOf("a", 6)},
		"the same grant twice": {grant(7), grant(7)},
	} {
		claims, err := r.Store.Claim(r.ctx, unseen(grants...)...)
		r.check(errors.Is(err, fence.ErrInvalid) && claims == nil, "%s: want fence.ErrInvalid, got %+v: %v", what, claims, err)
	}
	r.check(len(r.entries(resource))+len(r.entries("a")) == 0, "invalid claims left entries")
	r.claim(grant(1))
}

func claimOddNames[Tx any](r *run[Tx]) {
	names := []string{
		"a", "a/", "a/b", "A", " a", "ä", "a\u0308", "日本語", `"`, "'", "''", `\`, `\\`, "%", "%s", "%25",
		"a_b", "a-b", "$1", "?", "; --", strings.Repeat("x", fence.MaxResourceLen), strings.Repeat("x", fence.MaxResourceLen-1) + "y",
	}
	for i, name := range names {
		g := grantOf(name, fence.Token(len(names)-i))
		if len(name) <= fence.MaxHolderLen {
			g.Holder = name
		}
		c := r.claim(g)
		r.check(c.Seq == 1, "%q shares its fence with a name before it", name)
		r.at(r.write(r.set(key, int64(i+1)), c), storage.KindWrite)
		r.holds(key, int64(i+1))
	}
}

func claimCancelled[Tx any](r *run[Tx]) {
	_, err := r.Store.Claim(r.ended(), unseen(grant(7))...)
	r.check(errors.Is(err, context.Canceled), "want context.Canceled, got: %v", err)
	r.check(len(r.entries(resource)) == 0, "a cancelled claim left an entry")
}

func claimSeveral[Tx any](r *run[Tx]) {
	r.claim(grantOf("d", 1))
	mine := r.write(r.set(key, 1), r.claim(grantOf("b", 6)))
	grants := []fence.Grant{grantOf("c", 7), grantOf("d", 8), grantOf("a", 5), mine.Grant}
	claims := r.claimAll(grants...)
	r.check(claims[3] == mine, "a repeated claim among others is %+v, want %+v", claims[3], mine)
	for i, seq := range []int64{1, 2, 1} {
		r.at(claims[i], storage.KindClaim)
		r.check(claims[i].Seq == seq, "%+v, want sequence number %d", claims[i], seq)
	}

	lower := []fence.Grant{grantOf("d", 4), grantOf("b", 3)}
	some, err := r.Store.Claim(r.ctx, unseen(lower[0], grantOf("e", 5), lower[1], grants[0])...)
	r.sameLength(some, make([]storage.Claim, 4))
	r.check(some[0] == storage.Claim{} && some[2] == storage.Claim{}, "the rejected grants have the claims %+v and %+v", some[0], some[2])
	r.check(some[3] == claims[0], "a repeated claim beside rejected ones is %+v, want %+v", some[3], claims[0])
	r.at(some[1], storage.KindClaim)
	for _, g := range lower {
		records := r.rejections(g.Resource)
		r.check(len(records) == 1 && records[0].Grant == g && records[0].Stage == storage.StageClaim && records[0].Reason == storage.ReasonStale,
			"the rejection of %v was recorded as %+v", g, records)
		r.check(wrapsRejection(err, g), "the error lacks the rejection of %v: %v", g, err)
	}
	moved, err := r.transact(r.ctx, r.set(key, 2), claims...)
	r.noError(err)
	again := r.claimAll(grants...)
	r.check(slices.Equal(again, moved), "claims after a write are %+v, want %+v", again, moved)
}

func wrapsRejection(err error, g fence.Grant) bool {
	switch e := err.(type) {
	case *storage.RejectedError:
		return e.Grant == g
	case interface{ Unwrap() error }:
		return wrapsRejection(e.Unwrap(), g)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return wrapsRejection(err, g) })
	}
	return false
}

// Several processes claim in all orders, under ever newer grants. None waits for ever; each commits or is stale.
func claimConcurrent[Tx any](r *run[Tx]) {
	const workers, rounds = 6, 5
	names := []string{"a", "b", "c"}
	var tokens, committed atomic.Int64
	errs := make([]error, workers)
	round := func(worker int) error {
		token := fence.Token(tokens.Add(1))
		var grants []fence.Grant
		for i := range names {
			grants = append(grants, grantOf(names[(i*(1+worker%2)+worker)%len(names)], token))
		}
		claims, err := r.Store.Claim(r.ctx, unseen(grants...)...)
		if err != nil {
			return err
		}
		_, err = r.transact(r.ctx, r.add(key, 1), claims...)
		return err
	}
	var done sync.WaitGroup
	for worker := range workers {
		done.Go(func() {
			for range rounds {
				if err := round(worker); err == nil {
					committed.Add(1)
				} else if !errors.Is(err, guard.ErrStaleToken) {
					errs[worker] = err
				}
			}
		})
	}
	done.Wait()
	r.noError(errors.Join(errs...))
	r.holds(key, committed.Load())
	for _, name := range names {
		entries := r.entries(name)
		r.monotone(entries)
		last := entries[len(entries)-1].Grant.Token
		r.check(last == workers*rounds, "%s is at token %d", name, last)
	}
}
