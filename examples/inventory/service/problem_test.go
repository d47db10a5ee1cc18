package service

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// What guard.Do ends in is a problem of its own kind, whatever it wraps.
func TestProblemOf_TellsErrorsApart(t *testing.T) {
	older := fence.Grant{Resource: "sku/a", Epoch: 1, Token: 7, Holder: "a-1"}
	newer := fence.Grant{Resource: "sku/a", Epoch: 1, Token: 9, Holder: "b-1"}
	refused := func(reason storage.Reason) error {
		return fmt.Errorf("around it: %w", &guard.RejectedError{Reason: reason, Stage: storage.StageSeal, Grant: older, Current: newer, Since: time.Unix(0, 0)})
	}
	unavailable := func(err error) error { return &fence.UnavailableError{Err: err} }
	away := func(reason fence.UnavailableReason) error { return &fence.UnavailableError{Reason: reason} }
	for name, c := range map[string]struct {
		err    error
		status int
		kind   string
	}{
		"stale":                     {refused(storage.ReasonStale), 409, "stale-grant"},
		"stale, out of time":        {fmt.Errorf("%w: %w", errOutOfTime, refused(storage.ReasonStale)), 409, "stale-grant"},
		"collision":                 {refused(storage.ReasonCollision), 503, "lock-service-back"},
		"epoch":                     {refused(storage.ReasonEpochBehind), 503, "lock-service-back"},
		"token jump":                {refused(storage.ReasonTokenJump), 503, "lock-service-back"},
		"went back":                 {refused(storage.ReasonWentBack), 503, "dependency-away"},
		"failed over":               {refused(storage.ReasonFailedOver), 503, "dependency-away"},
		"client's, stale":           {ofClientsGrant(refused(storage.ReasonStale)), 409, "stale-grant"},
		"client's, token jump":      {ofClientsGrant(refused(storage.ReasonTokenJump)), 409, "refused-grant"},
		"client's, overtaken":       {ofClientsGrant(refused(storage.ReasonOvertaken)), 503, "busy"},
		"client's, unknown":         {ofClientsGrant(&guard.UnknownOutcomeError{AskErr: refused(storage.ReasonStale)}), 503, "unknown-outcome"},
		"overtaken":                 {refused(storage.ReasonOvertaken), 503, "busy"},
		"etcd went back":            {refused(storage.ReasonTokensWentBack), 503, "lock-service-back"},
		"reuse":                     {&guard.KeyReusedError{}, 422, "key-reused"},
		"unknown":                   {&guard.UnknownOutcomeError{Err: errors.New("cut"), AskErr: refused(storage.ReasonStale)}, 503, "unknown-outcome"},
		"etcd away":                 {unavailable(context.DeadlineExceeded), 503, "dependency-away"},
		"etcd restored":             {away(fence.WentBack), 503, "lock-service-back"},
		"epoch unreadable":          {away(fence.InvalidEpoch), 503, "lock-service-back"},
		"etcd full":                 {away(fence.NoSpace), 503, "lock-service-full"},
		"no access to etcd":         {away(fence.Denied), 503, "lock-service-refuses"},
		"database away":             {fmt.Errorf("%w", postgres.ErrUnavailable), 503, "dependency-away"},
		"database slow":             {fmt.Errorf("%w: %w", context.DeadlineExceeded, guard.ErrStoreUnavailable), 503, "dependency-away"},
		"a read was slow":           {errSlowDatabase, 503, "dependency-away"},
		"database stops":            {&pgconn.PgError{Code: "57P01"}, 503, "dependency-away"},
		"too many connections":      {&pgconn.PgError{Code: "53300"}, 503, "dependency-away"},
		"connection lost":           {&pgconn.PgError{Code: "08006"}, 503, "dependency-away"},
		"deadlocks all along":       {&postgres.TransientError{Err: &pgconn.PgError{Code: "40P01"}}, 503, "dependency-away"},
		"out of time":               {fmt.Errorf("%w: %w", context.DeadlineExceeded, errOutOfTime), 503, "busy"},
		"overran":                   {context.DeadlineExceeded, 503, "busy"},
		"lease lost":                {&fence.LeaseLostError{}, 503, "busy"},
		"stopping":                  {guard.ErrClosed, 503, "stopping"},
		"stopping, locker":          {fmt.Errorf("guard: acquire sku/42: %w: locker is closed", fence.ErrClosed), 503, "stopping"},
		"a mistake in our SQL":      {&pgconn.PgError{Code: "42703"}, 500, ""},
		"anything else":             {errors.New("what?"), 500, ""},
		"a problem stays a problem": {fmt.Errorf("%w", badRequest("x")), 400, "bad-request"},
	} {
		p := problemOf(c.err)
		require.Equal(t, c.status, p.Status, name)
		want := "about:blank"
		if c.kind != "" {
			want = problemType(c.kind)
		}
		require.Equal(t, want, p.Type, name)
		require.Equal(t, c.status == 503, p.again, "%s: Retry-After", name)
	}
	p := problemOf(refused(storage.ReasonStale))
	require.Equal(t, &refusalFacts{Resource: "sku/a", Reason: "stale", Token: "7", CurrentToken: "9", Holder: "b-1", Since: p.Since}, p.refusalFacts)
	require.True(t, p.Since.Equal(time.Unix(0, 0)))
}
