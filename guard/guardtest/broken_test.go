package guardtest_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

type (
	tx    = *memory.Tx
	txn   = storage.Txn[tx]
	op    = storage.Op[tx]
	store = *memory.Store

	// beginner is Begin or BeginReadOnly of a store.
	beginner = func(ctx context.Context, claims ...storage.Claim) (txn, error)
	claimer  = func(ctx context.Context, s store, seen []storage.Claim) ([]storage.Claim, error)
	breaker  = func(ctx context.Context, s store, begin beginner, claims []storage.Claim) (txn, error)
	recaller = func(ctx context.Context, s store, key storage.OnceKey, claims []storage.Claim) ([]byte, bool, error)
)

// breakable is the memory store, with holes to break it at. A nil one is sound.
type breakable struct {
	store
	claim      claimer
	look       claimer
	begin      breaker // transactions of each kind
	recall     recaller
	resolve    func(ctx context.Context, s store, d storage.InDoubt) (bool, error)
	entries    func([]storage.Entry) []storage.Entry
	rejections func([]storage.Rejection) []storage.Rejection
	readsWrite bool
}

func (b *breakable) Claim(ctx context.Context, seen ...storage.Claim) ([]storage.Claim, error) {
	if b.claim != nil {
		return b.claim(ctx, b.store, seen)
	}
	return b.store.Claim(ctx, seen...)
}

func (b *breakable) Look(ctx context.Context, seen ...storage.Claim) ([]storage.Claim, error) {
	if b.look != nil {
		return b.look(ctx, b.store, seen)
	}
	return b.store.Look(ctx, seen...)
}

func (b *breakable) beginBy(ctx context.Context, begin beginner, claims []storage.Claim) (txn, error) {
	if b.begin != nil {
		return b.begin(ctx, b.store, begin, claims)
	}
	return begin(ctx, claims...)
}

func (b *breakable) Begin(ctx context.Context, claims ...storage.Claim) (txn, error) {
	return b.beginBy(ctx, b.store.Begin, claims)
}

func (b *breakable) BeginReadOnly(ctx context.Context, claims ...storage.Claim) (txn, error) {
	if b.readsWrite {
		return b.store.Begin(ctx, claims...)
	}
	return b.beginBy(ctx, b.store.BeginReadOnly, claims)
}

func (b *breakable) Recall(ctx context.Context, key storage.OnceKey, claims ...storage.Claim) ([]byte, bool, error) {
	if b.recall != nil {
		return b.recall(ctx, b.store, key, claims)
	}
	return b.store.Recall(ctx, key, claims...)
}

func (b *breakable) Resolve(ctx context.Context, d storage.InDoubt) (bool, error) {
	if b.resolve != nil {
		return b.resolve(ctx, b.store, d)
	}
	return b.store.Resolve(ctx, d)
}

func (b *breakable) Entries(ctx context.Context, name string, after int64, limit int) ([]storage.Entry, error) {
	entries, err := b.store.Entries(ctx, name, after, limit)
	if b.entries != nil {
		entries = b.entries(entries)
	}
	return entries, err
}

func (b *breakable) Rejections(ctx context.Context, name string, limit int) ([]storage.Rejection, error) {
	rejections, err := b.store.Rejections(ctx, name, limit)
	if b.rejections != nil {
		rejections = b.rejections(rejections)
	}
	return rejections, err
}

// broken are the stores that the contract has to flag, each with the parts that have to, or with
// the end of their names.
var broken = map[string]struct {
	breakable
	flagged []string
}{
	"accepts lower tokens":   {breakable{claim: acceptAt(storage.ReasonStale)}, []string{"Claim_RejectsLowerToken", "Rejection_StormIsCountedAndWaitsForNoTransaction"}},
	"accepts equal tokens":   {breakable{claim: acceptAt(storage.ReasonCollision)}, []string{"Claim_RejectsEqualTokenOfAnotherHolder"}},
	"accepts lower epochs":   {breakable{claim: acceptAt(storage.ReasonEpochBehind)}, []string{"Claim_HigherEpochBeatsHigherToken"}},
	"accepts invalid grants": {breakable{claim: acceptAt("")}, []string{"Claim_RejectsWhatIsInvalid"}},
	"accepts a history that lacks what was seen": {
		breakable{claim: func(ctx context.Context, s store, seen []storage.Claim) ([]storage.Claim, error) {
			return s.Claim(ctx, blind(seen)...)
		}},
		[]string{"Claim_RejectsAHistoryThatLacksWhatWasSeen"},
	},
	"looks at a history that lacks what was seen": {
		breakable{look: func(ctx context.Context, s store, seen []storage.Claim) ([]storage.Claim, error) {
			return s.Look(ctx, blind(seen)...)
		}},
		[]string{"Look_FindsWhatIsThere"},
	},
	"rejects a read without a grant": {
		breakable{look: func(ctx context.Context, s store, seen []storage.Claim) ([]storage.Claim, error) {
			claims, err := s.Look(ctx, seen...)
			for i := range claims {
				claims[i].Looked = false
			}
			return claims, err
		}},
		[]string{"Look_MovedMeanwhileIsNoRejection", "Look_FindsWhatIsThere"},
	},
	"rejects everything": {
		breakable{claim: each(func(_ context.Context, _ store, g fence.Grant) (storage.Claim, error) {
			return storage.Claim{}, &guard.RejectedError{Reason: storage.ReasonStale, Stage: storage.StageClaim, Grant: g}
		})},
		[]string{"Claim_OfTheHolderIsIdempotent", "_RejectsSupersededToken"},
	},
	"folds names": {
		breakable{claim: each(func(ctx context.Context, s store, g fence.Grant) (storage.Claim, error) {
			g.Resource = strings.ToLower(strings.TrimSpace(g.Resource))
			return claimOne(ctx, s, g)
		})},
		[]string{"Claim_KeepsOddNamesApart"},
	},
	"claims the first only": {
		breakable{claim: func(ctx context.Context, s store, seen []storage.Claim) ([]storage.Claim, error) {
			return s.Claim(ctx, seen[:min(len(seen), 1)]...)
		}},
		[]string{"Claim_OfSeveralClaimsTheGoodOnes", "Claim_RejectsWhatIsInvalid", "Claim_ConcurrentOnesLoseNothing"},
	},
	"ignores the context at Claim": {
		breakable{claim: func(_ context.Context, s store, seen []storage.Claim) ([]storage.Claim, error) {
			return s.Claim(context.Background(), seen...)
		}},
		[]string{"Claim_CancelledClaimsNothing"},
	},
	"has no fence at COMMIT":          {breakable{begin: lax(storage.ReasonStale)}, []string{"_RejectsSupersededToken"}},
	"compares tokens only":            {breakable{begin: lax(storage.ReasonOvertaken)}, []string{"_RejectsOvertakenSibling", "_AnyOfItsResourcesRulesItOut"}},
	"compares no last transaction":    {breakable{begin: lax(storage.ReasonWentBack)}, []string{"_RejectsAnotherPosition"}},
	"sees the first claim only":       {breakable{begin: firstClaimOnly}, []string{"_RejectsBadClaims", "_OneSupersededRejectsAll"}},
	"acknowledges without committing": {breakable{begin: with(change{dropAll: true})}, []string{"Seal_MovesEachFence", "Read_RejectsSupersededToken", "Txn_SeesItsOwnWrites"}},
	"commits at Rollback":             {breakable{begin: with(change{commitAtRollback: true})}, []string{"Rollback_Undoes"}},
	"commits what failed":             {breakable{begin: with(change{hideFailures: true})}, []string{"Run_ErrorLeavesNothing", "Run_PanicLeavesNothing", "Run_GoexitLeavesNothing"}},
	"can be used after the end":       {breakable{begin: with(change{neverEnds: true})}, []string{"Txn_IsUnusableAfterItsEnd"}},
	"runs two operations":             {breakable{begin: with(change{runsTwo: true})}, []string{"Txn_RunsAndRecordsSeveralOperations"}},
	"ignores the context at COMMIT":   {breakable{begin: with(change{ignoreCtx: true})}, []string{"_CancelledDoesNothing"}},
	"keeps nothing":                   {breakable{begin: with(change{dropKeep: true})}, []string{"Keep_IsRecalledForItsRequest", "Keep_IsOfItsMovesResource"}},
	"lets reads write":                {breakable{readsWrite: true}, []string{"Read_MovesEachFence", "Read_WritesNothing"}},
	"ignores the request": {
		breakable{recall: func(ctx context.Context, s store, key storage.OnceKey, claims []storage.Claim) ([]byte, bool, error) {
			result, found, err := s.Recall(ctx, key, claims...)
			if errors.Is(err, guard.ErrKeyReused) {
				return nil, true, nil
			}
			return result, found, err
		}},
		[]string{"Keep_IsRecalledForItsRequest", "Keep_IsOfItsMovesResource"},
	},
	"compares the fence of the key alone at Recall": {
		breakable{recall: func(ctx context.Context, s store, key storage.OnceKey, claims []storage.Claim) ([]byte, bool, error) {
			for _, c := range claims {
				if result, found, err := s.Recall(ctx, key, c); found || err != nil {
					return result, found, err
				}
			}
			return nil, false, nil
		}},
		[]string{"Recall_UnderAMovedFenceIsRejected"},
	},
	"resolves without a void": {
		breakable{resolve: func(ctx context.Context, s store, d storage.InDoubt) (bool, error) {
			c := d.Claims[0]
			entries, err := s.Entries(ctx, c.Grant.Resource, c.Seq, 1)
			return len(entries) == 1 && entries[0].Tx == d.Tx, err
		}},
		[]string{"_AnyOfItsResourcesRulesItOut"},
	},
	"resolves to true": {breakable{resolve: always(true)}, []string{"Resolve_SaysWhichTransactionTookThePosition", "_AnyOfItsResourcesRulesItOut"}},
	"has gaps in its history": {
		breakable{entries: func(all []storage.Entry) []storage.Entry {
			return slices.DeleteFunc(all, func(e storage.Entry) bool { return e.Kind == storage.KindVoid })
		}},
		[]string{"History_IsGaplessAndMonotoneInPages", "_AnyOfItsResourcesRulesItOut"},
	},
	"records no rejections": {
		breakable{rejections: func([]storage.Rejection) []storage.Rejection { return nil }},
		[]string{"Rejection_IsRecordedAndJustified", "Rejection_StormIsCountedAndWaitsForNoTransaction", "_RejectsSupersededToken"},
	},
}

func claimOne(ctx context.Context, s store, g fence.Grant) (storage.Claim, error) {
	claims, err := s.Claim(ctx, storage.Claim{Grant: g})
	if len(claims) == 0 {
		return storage.Claim{}, err
	}
	return claims[0], err
}

// each claims one grant by claim; of several the store is sound.
func each(claim func(ctx context.Context, s store, g fence.Grant) (storage.Claim, error)) claimer {
	return func(ctx context.Context, s store, seen []storage.Claim) ([]storage.Claim, error) {
		if len(seen) != 1 {
			return s.Claim(ctx, seen...)
		}
		c, err := claim(ctx, s, seen[0].Grant)
		return []storage.Claim{c}, err
	}
}

// acceptAt accepts what is rejected for reason, or if that is "" an invalid grant.
func acceptAt(reason storage.Reason) claimer {
	return each(func(ctx context.Context, s store, g fence.Grant) (storage.Claim, error) {
		c, err := claimOne(ctx, s, g)
		if isRejection(err, reason) || reason == "" && errors.Is(err, fence.ErrInvalid) {
			return storage.Claim{Grant: g, Resource: 1}, nil
		}
		return c, err
	})
}

func isRejection(err error, reason storage.Reason) bool {
	rejection := new(guard.RejectedError)
	return errors.As(err, &rejection) && rejection.Reason == reason
}

func blind(seen []storage.Claim) []storage.Claim {
	seen = slices.Clone(seen)
	for i := range seen {
		seen[i].Position = storage.Position{}
	}
	return seen
}

func always(applied bool) func(context.Context, store, storage.InDoubt) (bool, error) {
	return func(context.Context, store, storage.InDoubt) (bool, error) { return applied, nil }
}

func firstClaimOnly(ctx context.Context, _ store, begin beginner, claims []storage.Claim) (txn, error) {
	return begin(ctx, claims[:min(len(claims), 1)]...)
}

// lax transactions run their operations again, under the claim of whom the fence is at, when they are
// rejected for one reason.
func lax(ignore storage.Reason) breaker {
	return func(ctx context.Context, s store, begin beginner, claims []storage.Claim) (txn, error) {
		again := func(err error) (txn, bool) {
			rejection := new(guard.RejectedError)
			if !errors.As(err, &rejection) || rejection.Reason != ignore {
				return nil, false
			}
			current, err := claimOne(ctx, s, rejection.Current)
			if err != nil {
				return nil, false
			}
			other, err := begin(ctx, current)
			return other, err == nil
		}
		inner, err := begin(ctx, claims...)
		if other, ok := again(err); ok {
			return other, nil
		}
		return &laxTxn{txn: inner, again: again}, err
	}
}

type laxTxn struct {
	txn
	again func(error) (txn, bool)
	ops   []op
}

func (t *laxTxn) Run(ctx context.Context, o op) error {
	t.ops = append(t.ops, o)
	return t.txn.Run(ctx, o)
}

func (t *laxTxn) Commit(ctx context.Context, moves []storage.Move) ([]storage.Claim, error) {
	moved, err := t.txn.Commit(ctx, moves)
	other, ok := t.again(err)
	if !ok {
		return moved, err
	}
	for _, o := range t.ops {
		if err := other.Run(ctx, o); err != nil {
			return nil, err
		}
	}
	return other.Commit(ctx, moves)
}

type change struct {
	commitAtRollback, hideFailures, neverEnds, runsTwo, dropAll, ignoreCtx, dropKeep bool
}

type changedTxn struct {
	txn
	change
	claims []storage.Claim
	runs   int
	done   bool
}

func with(c change) breaker {
	return func(ctx context.Context, _ store, begin beginner, claims []storage.Claim) (txn, error) {
		inner, err := begin(ctx, claims...)
		if err != nil {
			return nil, err
		}
		return &changedTxn{txn: inner, change: c, claims: claims}, nil
	}
}

func (t *changedTxn) Run(ctx context.Context, o op) error {
	t.runs++
	switch {
	case t.neverEnds && t.done:
		return nil
	case t.runsTwo && t.runs > 2:
		return guard.ErrTxEnded
	case t.hideFailures:
		return t.runHidden(ctx, o)
	case t.ignoreCtx:
		ctx = context.Background()
	}
	return t.txn.Run(ctx, o)
}

// runHidden lets the store believe that an operation succeeded, however it ended.
func (t *changedTxn) runHidden(ctx context.Context, o op) error {
	var opErr error
	var panicked any
	returned := true
	err := t.txn.Run(ctx, storage.Func[tx](func(ctx context.Context, tx tx) error {
		returned = false
		var running sync.WaitGroup
		running.Go(func() {
			defer func() { panicked = recover() }()
			opErr = o.Run(ctx, tx)
			returned = true
		})
		running.Wait()
		return nil
	}))
	switch {
	case panicked != nil:
		panic(panicked)
	case !returned:
		runtime.Goexit()
	}
	return errors.Join(opErr, err)
}

func (t *changedTxn) Commit(ctx context.Context, moves []storage.Move) ([]storage.Claim, error) {
	if t.neverEnds && t.done {
		return t.claims, nil
	}
	t.done = true
	if t.dropAll {
		t.txn.Rollback(ctx)
		return t.claims, nil
	}
	if t.dropKeep {
		moves = slices.Clone(moves)
		for i := range moves {
			moves[i].Kept = nil
		}
	}
	if t.ignoreCtx {
		ctx = context.Background()
	}
	return t.txn.Commit(ctx, moves)
}

func (t *changedTxn) Rollback(ctx context.Context) {
	if t.commitAtRollback && !t.done {
		t.done = true
		_, _ = t.txn.Commit(context.Background(), nil)
	}
	t.done = true
	t.txn.Rollback(ctx)
}
