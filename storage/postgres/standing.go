package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// refusalNow asks, in a new transaction, where the fence of a claim stands, and
// returns the refusal that a transaction under that claim would meet; nil if it
// would meet none, or if that can't be learnt.
func (s *Store) refusalNow(ctx context.Context, claim storage.Claim) *storage.RejectedError {
	ctx, cancel := s.cleanup(ctx)
	defer cancel()
	answer, err := s.transact(ctx, fmt.Sprintf(s.sql.fence, text(claim.Grant.Resource)), "")
	if err != nil {
		return nil
	}
	refused := &storage.RejectedError{Grant: claim.Grant, Current: fence.Grant{Resource: claim.Grant.Resource}}
	if len(answer.rows) == 0 {
		refused.Reason = storage.ReasonWentBack
		return refused
	}
	var holder []byte
	var at storage.Position
	var sameTimeline bool
	var sinceMicros, ageMicros int64
	_, err = fmt.Sscanf(answer.first(), "%d %d %x %d %d %t %d %d",
		&refused.Current.Epoch, &refused.Current.Token, &holder, &at.Seq, &at.Tx, &sameTimeline, &sinceMicros, &ageMicros)
	if err != nil {
		return nil
	}
	refused.Current.Holder = string(holder)
	refused.Since, refused.Age = time.UnixMicro(sinceMicros), time.Duration(ageMicros)*time.Microsecond
	refused.Reason = claim.Check(refused.Current, at)
	if refused.Reason == "" && !sameTimeline {
		refused.Reason = storage.ReasonFailedOver
	}
	if refused.Reason == "" {
		return nil
	}
	return refused
}
