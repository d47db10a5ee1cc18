package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// refusalNow asks, in a new transaction, where the fence of a claim stands, and
// returns the refusal that a transaction under that claim would meet; nil if it
// would meet none, or if that can't be learnt.
func (s *Store) refusalNow(ctx context.Context, claim guard.Claim) *guard.RefusedError {
	ctx, cancel := s.cleanup(ctx)
	defer cancel()
	answer, err := s.transact(ctx, fmt.Sprintf(s.sql.fence, text(claim.Grant.Resource)), "")
	if err != nil {
		return nil
	}
	refused := &guard.RefusedError{Grant: claim.Grant, Current: fence.Grant{Resource: claim.Grant.Resource}}
	if len(answer.rows) == 0 {
		refused.Reason = guard.ReasonWentBack
		return refused
	}
	var holder []byte
	var at guard.Position
	var sameTimeline bool
	var sinceMicros, ageMicros int64
	_, err = fmt.Sscanf(answer.first(), "%d %d %x %d %d %t %d %d",
		&refused.Current.Epoch, &refused.Current.Token, &holder, &at.Seq, &at.Tx, &sameTimeline, &sinceMicros, &ageMicros)
	if err != nil {
		return nil
	}
	refused.Current.Holder = string(holder)
	refused.Since, refused.Age = time.UnixMicro(sinceMicros), time.Duration(ageMicros)*time.Microsecond
	refused.Reason = reasonAt(claim, refused.Current, at)
	if refused.Reason == "" && !sameTimeline {
		refused.Reason = guard.ReasonFailedOver
	}
	if refused.Reason == "" {
		return nil
	}
	return refused
}

// reasonAt judges as the seal does on the server.
func reasonAt(claim guard.Claim, current fence.Grant, at guard.Position) guard.Reason {
	switch order := current.Compare(claim.Grant); {
	case order > 0:
		return guard.ReasonStale
	case order == 0 && current.Holder != claim.Grant.Holder:
		return guard.ReasonCollision
	case order == 0 && at.Seq > claim.Seq:
		return guard.ReasonOvertaken
	case order < 0 || at != claim.Position:
		return guard.ReasonWentBack
	}
	return ""
}
