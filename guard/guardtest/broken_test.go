package guardtest_test

import (
	"context"
	"errors"
	"slices"
	"strings"

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
)

// breakable is the memory store, with holes to break it at. A nil one is sound.
type breakable struct {
	store
	claim      func(ctx context.Context, s store, g fence.Grant) (storage.Claim, error) // of one grant
	claims     func(ctx context.Context, s store, seen []storage.Claim) ([]storage.Claim, error)
	begin      func(ctx context.Context, s store, claims []storage.Claim) (txn, error)
	canGroup   func(asked int) bool // asked counts the calls of CanGroup
	beginRead  func(ctx context.Context, s store, claims []storage.Claim) (txn, error)
	beginGroup func(ctx context.Context, s store, members func() []storage.Claim) (txn, error)
	recall     func(ctx context.Context, s store, key storage.OnceKey, claims []storage.Claim) ([]byte, bool, error)
	resolve    func(ctx context.Context, s store, d storage.InDoubt) (bool, error)
	entries    func([]storage.Entry) []storage.Entry
	rejections func([]storage.Rejection) []storage.Rejection

	asked int // how often CanGroup was called
}

func (b *breakable) Claim(ctx context.Context, seen ...storage.Claim) ([]storage.Claim, error) {
	switch {
	case b.claims != nil:
		return b.claims(ctx, b.store, seen)
	case b.claim == nil || len(seen) != 1:
		return b.store.Claim(ctx, seen...)
	}
	c, err := b.claim(ctx, b.store, seen[0].Grant)
	return []storage.Claim{c}, err
}

// claimOne claims one grant, and has seen nothing of its fence.
func claimOne(ctx context.Context, s store, g fence.Grant) (storage.Claim, error) {
	claims, err := s.Claim(ctx, storage.Claim{Grant: g})
	if len(claims) == 0 {
		return storage.Claim{}, err
	}
	return claims[0], err
}

func (b *breakable) Begin(ctx context.Context, claims ...storage.Claim) (txn, error) {
	if b.begin != nil {
		return b.begin(ctx, b.store, claims)
	}
	return b.store.Begin(ctx, claims...)
}

func (b *breakable) BeginReadOnly(ctx context.Context, claims ...storage.Claim) (txn, error) {
	if b.beginRead != nil {
		return b.beginRead(ctx, b.store, claims)
	}
	return b.store.BeginReadOnly(ctx, claims...)
}

func (b *breakable) CanGroup() bool {
	b.asked++
	return b.canGroup == nil || b.canGroup(b.asked)
}

func (b *breakable) BeginGroup(ctx context.Context, members func() []storage.Claim) (txn, error) {
	if b.beginGroup != nil {
		return b.beginGroup(ctx, b.store, members)
	}
	return b.store.BeginGroup(ctx, members)
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

// broken are the stores that the contract has to flag, each with the parts that
// have to.
var broken = map[string]struct {
	breakable
	flagged []string
}{
	"claims nothing before a transaction": {
		breakable{
			claim: func(_ context.Context, _ store, g fence.Grant) (storage.Claim, error) {
				return storage.Claim{Grant: g}, nil
			},
			begin: func(ctx context.Context, s store, claims []storage.Claim) (txn, error) {
				var fresh []storage.Claim
				for _, c := range claims {
					c, err := claimOne(ctx, s, c.Grant)
					if err != nil {
						return nil, err
					}
					fresh = append(fresh, c)
				}
				return s.Begin(ctx, fresh...)
			},
		},
		[]string{"Claim_FirstMovesTheFence", "Claim_RejectsLowerToken"},
	},
	"moves the fence at a repeated claim": {
		breakable{claim: func(ctx context.Context, s store, g fence.Grant) (storage.Claim, error) {
			c, err := claimOne(ctx, s, g)
			if err != nil || c.Seq == 1 {
				return c, err
			}
			_, err = s.Resolve(ctx, storage.InDoubt{Claims: []storage.Claim{c}})
			return c, err
		}},
		[]string{"Claim_OfTheHolderIsIdempotent"},
	},
	"accepts lower tokens": {
		breakable{claim: acceptAt(storage.ReasonStale)},
		[]string{"Claim_RejectsLowerToken", "Rejection_StormIsCounted"},
	},
	"accepts equal tokens": {breakable{claim: acceptAt(storage.ReasonCollision)}, []string{"Claim_RejectsEqualTokenOfAnotherHolder"}},
	"accepts lower epochs": {breakable{claim: acceptAt(storage.ReasonEpochBehind)}, []string{"Claim_RejectsLowerEpoch", "Claim_HigherEpochBeatsHigherToken"}},
	"accepts a history that lacks what was seen": {
		breakable{claims: func(ctx context.Context, s store, seen []storage.Claim) ([]storage.Claim, error) {
			seen = slices.Clone(seen)
			for i := range seen {
				seen[i].Position = storage.Position{}
			}
			return s.Claim(ctx, seen...)
		}},
		[]string{"Claim_RejectsAHistoryThatLacksWhatWasSeen"},
	},
	"compares how far the fence was seen alone": {
		breakable{claims: func(ctx context.Context, s store, seen []storage.Claim) ([]storage.Claim, error) {
			claims, err := s.Claim(ctx, seen...)
			for i, c := range seen {
				var rejection *guard.RejectedError
				if errors.As(err, &rejection) && rejection.Reason == storage.ReasonWentBack && c.Seq == 2 {
					seen = slices.Clone(seen)
					seen[i].Position = storage.Position{}
					return s.Claim(ctx, seen...)
				}
			}
			return claims, err
		}},
		[]string{"Claim_RejectsAHistoryThatLacksWhatWasSeen"},
	},
	"accepts invalid grants": {breakable{claim: acceptAt("")}, []string{"Claim_RejectsInvalidGrants"}},
	"rejects everything": {
		breakable{claim: func(_ context.Context, _ store, g fence.Grant) (storage.Claim, error) {
			return storage.Claim{}, &guard.RejectedError{Reason: storage.ReasonStale, Stage: storage.StageClaim, Grant: g}
		}},
		[]string{"Claim_FirstMovesTheFence", "Seal_MovesByOnePosition"},
	},
	"folds names": {
		breakable{claim: func(ctx context.Context, s store, g fence.Grant) (storage.Claim, error) {
			g.Resource = strings.ToLower(strings.TrimSpace(g.Resource))
			return claimOne(ctx, s, g)
		}},
		[]string{"Claim_KeepsOddNamesApart"},
	},
	"claims all or none": {
		breakable{claims: func(ctx context.Context, s store, seen []storage.Claim) ([]storage.Claim, error) {
			claims, err := s.Claim(ctx, seen...)
			if err != nil {
				return nil, err
			}
			return claims, nil
		}},
		[]string{"Claim_OfSeveralClaimsTheGoodOnes"},
	},
	"claims the first only": {
		breakable{claims: func(ctx context.Context, s store, seen []storage.Claim) ([]storage.Claim, error) {
			if len(seen) < 2 {
				return s.Claim(ctx, seen...)
			}
			return s.Claim(ctx, seen[0])
		}},
		[]string{"Claim_OfSeveral", "Claim_RejectsBadSets", "Claim_ConcurrentOfSeveralNeverDeadlocks"},
	},
	"has no fence at COMMIT":       {breakable{begin: lax(storage.ReasonStale)}, []string{"Seal_RejectsSupersededToken"}},
	"compares tokens only":         {breakable{begin: lax(storage.ReasonOvertaken)}, []string{"Seal_RejectsOvertakenSibling", "Resolve_OfUnsentCommitVoidsIt", "Resolve_OfSeveralClaims"}},
	"compares no last transaction": {breakable{begin: lax(storage.ReasonWentBack)}, []string{"Seal_RejectsWrongLastTransaction", "Seal_RejectsPositionAhead"}},
	"compares no holder":           {breakable{begin: lax(storage.ReasonCollision)}, []string{"Claim_RejectsEqualTokenOfAnotherHolder"}},
	"seals each claim alone":       {breakable{begin: sealEachAlone}, []string{"Seal_SeveralClaimsAllOrNothing"}},
	"checks claims not at all":     {breakable{begin: firstClaimOnly}, []string{"Begin_RejectsBadClaims", "Seal_SeveralClaimsAllOrNothing"}},
	"acknowledges without committing": {
		breakable{begin: with(change{dropAll: true})},
		[]string{"Seal_MovesByOnePosition", "Seal_ConcurrentGrantsLoseNothing", "Txn_SeesItsOwnWrites"},
	},
	"commits at Rollback":              {breakable{begin: with(change{commitAtRollback: true})}, []string{"Rollback_Undoes"}},
	"commits after an error":           {breakable{begin: with(change{hideErrors: true})}, []string{"Run_ErrorLeavesNothing"}},
	"commits after a panic":            {breakable{begin: with(change{hidePanics: true})}, []string{"Run_PanicLeavesNothing"}},
	"commits after Goexit":             {breakable{begin: with(change{hideGoexit: true})}, []string{"Run_GoexitLeavesNothing"}},
	"can be used after the end":        {breakable{begin: with(change{neverEnds: true})}, []string{"Txn_IsUnusableAfterItsEnd"}},
	"runs one operation":               {breakable{begin: with(change{once: true})}, []string{"Txn_RunsSeveralOperations"}},
	"writes the first move for all":    {breakable{begin: with(change{firstMove: true})}, []string{"Keep_OfAnotherMoveIsOfItsResource"}},
	"counts no moves":                  {breakable{begin: with(change{anyMoves: true})}, []string{"Seal_RejectsAnotherNumberOfMoves"}},
	"keeps no operations":              {breakable{begin: with(change{dropOps: true})}, []string{"History_KeepsOperations"}},
	"ignores the context at COMMIT":    {breakable{begin: with(change{ignoreCtx: true})}, []string{"Commit_CancelledDoesNothing"}},
	"is in doubt about what it unsent": {breakable{begin: with(change{doubtful: true})}, []string{"Commit_CancelledDoesNothing"}},
	"ignores the context at Begin": {
		breakable{begin: func(_ context.Context, s store, claims []storage.Claim) (txn, error) {
			return with(change{ignoreCtx: true})(context.Background(), s, claims)
		}},
		[]string{"Begin_CancelledDoesNothing"},
	},
	"answers reads without a check":    {breakable{beginRead: reading(readChange{never: true})}, []string{"Read_SupersededMeanwhileIsRejected", "Read_OvertakenBySiblingIsRejected", "Read_OfAnotherPositionIsRejected"}},
	"checks the grants of reads only":  {breakable{beginRead: reading(readChange{grantOnly: true})}, []string{"Read_OvertakenBySiblingIsRejected"}},
	"checks reads before they run":     {breakable{beginRead: reading(readChange{early: true})}, []string{"Read_SupersededMeanwhileIsRejected", "Read_OfSeveralChecksEach"}},
	"checks the first claim of a read": {breakable{beginRead: reading(readChange{first: true})}, []string{"Read_OfSeveralChecksEach"}},
	"begins reads without a look":      {breakable{beginRead: reading(readChange{never: true, current: true})}, []string{"Read_RejectsSupersededClaim"}},
	"lets reads write": {
		breakable{beginRead: func(ctx context.Context, s store, claims []storage.Claim) (txn, error) {
			return s.Begin(ctx, claims...)
		}},
		[]string{"Read_MovesNothing", "Read_WritesNothing", "Read_RejectsMoves", "Read_SupersededMeanwhileIsRejected"},
	},
	"is in doubt about reads": {breakable{beginRead: reading(readChange{doubtful: true})}, []string{"Read_CancelledIsNotInDoubt"}},
	"takes the calls of a group twice": {
		breakable{beginGroup: func(ctx context.Context, s store, members func() []storage.Claim) (txn, error) {
			members()
			return s.BeginGroup(ctx, members)
		}},
		[]string{"Group_TakesItsCallsOnce"},
	},
	"takes the calls of a group at once": {
		breakable{beginGroup: func(ctx context.Context, s store, members func() []storage.Claim) (txn, error) {
			claims := members()
			return s.BeginGroup(ctx, func() []storage.Claim { return claims })
		}},
		[]string{"Group_TakesNoCallsWhenCtxHasEnded"},
	},
	"begins groups under the first claim": {breakable{beginGroup: grouped(firstClaimOnly)}, []string{"Group_TakesItsCallsOnce", "Group_AnyOfItsResourcesRulesItOut"}},
	"seals each claim of a group alone": {
		breakable{beginGroup: grouped(sealEachAlone)},
		[]string{"Group_MovesEachFenceInOneTransaction", "Group_OneSupersededMeanwhileRejectsAll"},
	},
	"writes the first move of a group for all": {breakable{beginGroup: grouped(with(change{firstMove: true}))}, []string{"Group_MovesEachFenceInOneTransaction"}},
	"ignores the context at Claim": {
		breakable{claim: func(_ context.Context, s store, g fence.Grant) (storage.Claim, error) {
			return claimOne(context.Background(), s, g)
		}},
		[]string{"Claim_CancelledDoesNothing"},
	},
	"keeps nothing":                 {breakable{begin: with(change{dropKeep: true})}, []string{"Keep_IsRecalledOnceCommitted", "Keep_IsOfEveryClaimsResource"}},
	"keeps before the commit":       {breakable{begin: with(change{keepAtOnce: true})}, []string{"Keep_GoesWithTheTransaction"}},
	"recalls under the first claim": {breakable{recall: firstOnly}, []string{"Keep_IsOfEveryClaimsResource"}},
	"ignores the request": {
		breakable{recall: func(ctx context.Context, s store, key storage.OnceKey, claims []storage.Claim) ([]byte, bool, error) {
			result, found, err := s.Recall(ctx, key, claims...)
			if errors.Is(err, guard.ErrKeyReused) {
				return nil, true, nil
			}
			return result, found, err
		}},
		[]string{"Keep_RejectsAnotherRequest"},
	},
	"recalls under any claim": {
		breakable{recall: func(ctx context.Context, s store, key storage.OnceKey, claims []storage.Claim) ([]byte, bool, error) {
			current, err := claimOne(ctx, s, claims[0].Grant)
			if err != nil || len(claims) > 1 {
				return s.Recall(ctx, key, claims...)
			}
			return s.Recall(ctx, key, current)
		}},
		[]string{"Recall_UnderAMovedFenceIsRejected"},
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
		[]string{"Resolve_OfUnsentCommitVoidsIt", "Resolve_OfSeveralClaims"},
	},
	"resolves to true":  {breakable{resolve: always(true)}, []string{"Resolve_OfUnsentCommitVoidsIt", "Resolve_OfSupersededCommit"}},
	"resolves to false": {breakable{resolve: always(false)}, []string{"Resolve_OfAppliedCommit"}},
	"has gaps in its history": {
		breakable{entries: func(all []storage.Entry) []storage.Entry {
			return slices.DeleteFunc(all, func(e storage.Entry) bool { return e.Kind == storage.KindVoid })
		}},
		[]string{"History_IsGaplessAndMonotone", "Resolve_OfUnsentCommitVoidsIt"},
	},
	"ignores the limit of a page": {
		breakable{entries: func(all []storage.Entry) []storage.Entry { return slices.Concat(all, all) }},
		[]string{"History_PagesByPosition"},
	},
	"records no rejections": {
		breakable{rejections: func([]storage.Rejection) []storage.Rejection { return nil }},
		[]string{"Rejection_IsRecordedAndJustified", "Rejection_StormIsCounted"},
	},
	"counts no rejections": {
		breakable{rejections: func(all []storage.Rejection) []storage.Rejection {
			for i := range all {
				all[i].Count = 1
			}
			return all
		}},
		[]string{"Rejection_StormIsCounted"},
	},
	"fails to record rejections": {
		breakable{claim: func(ctx context.Context, s store, g fence.Grant) (storage.Claim, error) {
			c, err := claimOne(ctx, s, g)
			var rejection *guard.RejectedError
			if errors.As(err, &rejection) {
				rejection.RecordErr = errors.New("disk full")
			}
			return c, err
		}},
		[]string{"Rejection_WaitsForNoTransaction", "Rejection_StormIsCounted"},
	},
}

// grouped makes a BeginGroup of a Begin.
func grouped(begin func(context.Context, store, []storage.Claim) (txn, error)) func(context.Context, store, func() []storage.Claim) (txn, error) {
	return func(ctx context.Context, s store, members func() []storage.Claim) (txn, error) {
		return begin(ctx, s, members())
	}
}

// acceptAt is a Claim that accepts what is rejected for reason, or if that is "" an
// invalid grant.
func acceptAt(reason storage.Reason) func(context.Context, store, fence.Grant) (storage.Claim, error) {
	return func(ctx context.Context, s store, g fence.Grant) (storage.Claim, error) {
		c, err := claimOne(ctx, s, g)
		rejection := new(guard.RejectedError)
		if errors.As(err, &rejection) && rejection.Reason == reason || reason == "" && errors.Is(err, fence.ErrInvalid) {
			return storage.Claim{Grant: g, Resource: 1}, nil
		}
		return c, err
	}
}

func firstOnly(ctx context.Context, s store, key storage.OnceKey, claims []storage.Claim) ([]byte, bool, error) {
	return s.Recall(ctx, key, claims[0])
}

func always(applied bool) func(context.Context, store, storage.InDoubt) (bool, error) {
	return func(context.Context, store, storage.InDoubt) (bool, error) { return applied, nil }
}
