package storage_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// The one rule of rejections in Go: what the seal of storage/memory rejects, and what
// storage/postgres finds behind a serialization failure.
func TestCheck_JudgesAsTheSealDoes(t *testing.T) {
	claim := storage.Claim{Grant: fence.Grant{Epoch: 2, Token: 5, Holder: "a"}, Position: storage.Position{Seq: 7, Tx: 70}}
	for want, fences := range map[storage.Reason][]storage.Claim{
		"":                      {claim},
		storage.ReasonStale:     {{Grant: fence.Grant{Epoch: 2, Token: 6, Holder: "b"}}, {Grant: fence.Grant{Epoch: 3, Token: 1, Holder: "b"}}},
		storage.ReasonCollision: {{Grant: fence.Grant{Epoch: 2, Token: 5, Holder: "b"}, Position: claim.Position}},
		storage.ReasonOvertaken: {{Grant: claim.Grant, Position: storage.Position{Seq: 8, Tx: 80}}},
		storage.ReasonWentBack: {
			{Grant: claim.Grant, Position: storage.Position{Seq: 6, Tx: 60}},
			{Grant: claim.Grant, Position: storage.Position{Seq: 7, Tx: 71}},
			{Grant: fence.Grant{Epoch: 2, Token: 4, Holder: "z"}, Position: storage.Position{Seq: 9, Tx: 90}},
			{Grant: fence.Grant{Epoch: 1, Token: 9, Holder: "z"}, Position: storage.Position{Seq: 9, Tx: 90}},
		},
	} {
		for _, f := range fences {
			require.Equal(t, want, claim.Check(f.Grant, f.Position), "%+v", f)
		}
	}
}

// A rejection at the claim speaks of the process, whose grant is new; a fence may have lost all its claims.
func TestRejectedError_SaysWhoHasSeenMore(t *testing.T) {
	old, current := fence.Grant{Resource: "sku/1", Epoch: 1, Token: 5, Holder: "a"}, fence.Grant{Resource: "sku/1", Epoch: 1, Token: 4, Holder: "b"}
	require.EqualError(t, &storage.RejectedError{Reason: storage.ReasonWentBack, Stage: storage.StageSeal, Grant: old, Current: current},
		"storage: sku/1: token 5 has seen more than the fence shows (token 4 of b): the database went back to an older state")
	require.EqualError(t, &storage.RejectedError{Reason: storage.ReasonWentBack, Stage: storage.StageClaim, Grant: old},
		"storage: sku/1: token 5 can't claim: its process has seen more than the fence shows (no claim): the database went back to an older state")
}
