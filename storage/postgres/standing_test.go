package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// What a serialization failure hides is judged as the seal judges.
func TestReasonAt_JudgesAsTheSealDoes_N23(t *testing.T) {
	claim := guard.Claim{Grant: fence.Grant{Epoch: 2, Token: 5, Holder: "a"}, Position: guard.Position{Seq: 7, Tx: 70}}
	for want, fences := range map[guard.Reason][]guard.Claim{
		"":                    {claim},
		guard.ReasonStale:     {{Grant: fence.Grant{Epoch: 2, Token: 6, Holder: "b"}}, {Grant: fence.Grant{Epoch: 3, Token: 1, Holder: "b"}}},
		guard.ReasonCollision: {{Grant: fence.Grant{Epoch: 2, Token: 5, Holder: "b"}, Position: claim.Position}},
		guard.ReasonOvertaken: {{Grant: claim.Grant, Position: guard.Position{Seq: 8, Tx: 80}}},
		guard.ReasonWentBack: {
			{Grant: claim.Grant, Position: guard.Position{Seq: 6, Tx: 60}},
			{Grant: claim.Grant, Position: guard.Position{Seq: 7, Tx: 71}},
			{Grant: fence.Grant{Epoch: 2, Token: 4, Holder: "z"}, Position: guard.Position{Seq: 9, Tx: 90}},
			{Grant: fence.Grant{Epoch: 1, Token: 9, Holder: "z"}, Position: guard.Position{Seq: 9, Tx: 90}},
		},
	} {
		for _, f := range fences {
			require.Equal(t, want, reasonAt(claim, f.Grant, f.Position), "%+v", f)
		}
	}
}
