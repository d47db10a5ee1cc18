package guard

import "github.com/fencekit/fencekit/storage"

import "context"

// own takes what h needs, and claims it (G1). If the lock service's epoch was raised
// while the call waited for the lock, its grant is behind: nothing has run under it, so
// another one is acquired. If that one has the same epoch, the lock service itself is
// behind. The tenures are also returned together with the error of a claim.
func (g *Guard[Tx]) own(ctx context.Context, h *hand) ([]*tenure, error) {
	behind := map[string]int64{} // by resource: the highest epoch that was refused
	for {
		tenures, err := h.own(ctx)
		if err != nil {
			return nil, err
		}
		ss := standingsOf(tenures)
		err = g.readyAll(ctx, ss)
		refusal := refusalOf(err, ss.grants()...)
		if refusal == nil || refusal.Reason != storage.ReasonEpochBehind || refusal.Grant.Epoch <= behind[refusal.Grant.Resource] {
			return tenures, err
		}
		behind[refusal.Grant.Resource] = refusal.Grant.Epoch
	}
}

func standingsOf(tenures []*tenure) standings {
	ss := make(standings, len(tenures))
	for i, t := range tenures {
		ss[i] = &t.standing
	}
	return ss
}
