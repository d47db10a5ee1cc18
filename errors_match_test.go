package fencekit_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// sentinels has each sentinel by its name in docs/errors.md.
var sentinels = map[string]error{
	"fence.ErrLocked":           fence.ErrLocked,
	"fence.ErrLeaseLost":        fence.ErrLeaseLost,
	"fence.ErrReleased":         fence.ErrReleased,
	"fence.ErrUnavailable":      fence.ErrUnavailable,
	"fence.ErrNoLeader":         fence.ErrNoLeader,
	"fence.ErrClosed":           fence.ErrClosed,
	"fence.ErrInvalid":          fence.ErrInvalid,
	"guard.ErrStaleToken":       guard.ErrStaleToken,
	"guard.ErrOvertaken":        guard.ErrOvertaken,
	"guard.ErrWrongLockService": guard.ErrWrongLockService,
	"guard.ErrFailedOver":       guard.ErrFailedOver,
	"guard.ErrTxEnded":          guard.ErrTxEnded,
	"guard.ErrUnknownOutcome":   guard.ErrUnknownOutcome,
	"guard.ErrKeyReused":        guard.ErrKeyReused,
	"guard.ErrStoreUnavailable": guard.ErrStoreUnavailable,
	"postgres.ErrNotReady":      postgres.ErrNotReady,
	"postgres.ErrPruned":        postgres.ErrPruned,
}

// matching has an error for each row of the table "What errors.Is and SafeToRetry say".
var matching = map[string]error{
	"`*guard.RejectedError`, `stale`":            &guard.RejectedError{Reason: storage.ReasonStale},
	"`*guard.RejectedError`, `overtaken`":        &guard.RejectedError{Reason: storage.ReasonOvertaken},
	"`*guard.RejectedError`, `collision`":        &guard.RejectedError{Reason: storage.ReasonCollision},
	"`*guard.RejectedError`, `epoch behind`":     &guard.RejectedError{Reason: storage.ReasonEpochBehind},
	"`*guard.RejectedError`, `tokens went back`": &guard.RejectedError{Reason: storage.ReasonTokensWentBack},
	"`*guard.RejectedError`, `token jump`":       &guard.RejectedError{Reason: storage.ReasonTokenJump},
	"`*guard.RejectedError`, `went back`":        &guard.RejectedError{Reason: storage.ReasonWentBack},
	"`*guard.RejectedError`, `failed over`":      &guard.RejectedError{Reason: storage.ReasonFailedOver},
	"`*guard.RejectedError`, `stale`, around `guard.ErrStoreUnavailable`": &guard.RejectedError{
		Reason: storage.ReasonStale, Err: fmt.Errorf("insert: %w", guard.ErrStoreUnavailable)},
	"`*guard.UnknownOutcomeError`": &guard.UnknownOutcomeError{Err: io.EOF, AskErr: io.EOF},
	"`*guard.UnknownOutcomeError`, `collision` when it was asked about": &guard.UnknownOutcomeError{
		Err: io.EOF, AskErr: &guard.RejectedError{Reason: storage.ReasonCollision}},
	"`*guard.UnknownOutcomeError`, of a call with `guard.Once`": &guard.UnknownOutcomeError{Err: io.EOF, AskErr: io.EOF, Once: true},
	"`guard.ErrTxEnded`":                                       fmt.Errorf("%w by SQL in the operation", guard.ErrTxEnded),
	"`*guard.KeyReusedError`":                                  &guard.KeyReusedError{},
	"`guard.ErrStoreUnavailable`":                              fmt.Errorf("%w: no answer in time", guard.ErrStoreUnavailable),
	"`*fence.LockedError`":                                     &fence.LockedError{},
	"`*fence.LeaseLostError`":                                  &fence.LeaseLostError{Reason: fence.LossExpired},
	"`fence.ErrReleased`":                                      fence.ErrReleased,
	"`fence.ErrNoLeader`":                                      fence.ErrNoLeader,
	"`fence.ErrClosed`":                                        fmt.Errorf("%w: locker is closed", fence.ErrClosed),
	"`fence.ErrInvalid`":                                       fmt.Errorf("%w: nested call", fence.ErrInvalid),
	"`*fence.InvalidGrantError`":                               &fence.InvalidGrantError{},
	"`*guard.AcrossShardsError`":                               &guard.AcrossShardsError{},
	"`*postgres.TransientError`":                               &postgres.TransientError{Err: io.EOF},
	"`postgres.ErrPruned`":                                     postgres.ErrPruned,
	"`*postgres.AffectedError`":                                &postgres.AffectedError{},
	"`*etcd.NotHolderError`":                                   &etcd.NotHolderError{},
	"`*fence.UnavailableError`, `no answer`":                   &fence.UnavailableError{Reason: fence.Unreachable, Err: io.EOF},
	"`*fence.UnavailableError`, `out of space`":                &fence.UnavailableError{Reason: fence.NoSpace, Err: io.EOF},
	"`*fence.UnavailableError`, `access denied`":               &fence.UnavailableError{Reason: fence.Denied, Err: io.EOF},
	"`*fence.UnavailableError`, `went back to an older state`": &fence.UnavailableError{Reason: fence.WentBack, Err: io.EOF},
	"`*fence.UnavailableError`, `invalid epoch`":               &fence.UnavailableError{Reason: fence.InvalidEpoch, Err: io.EOF},
	"`*fence.UnavailableError`, `queue position lost`":         &fence.UnavailableError{Reason: fence.QueueLost, Err: io.EOF},
	"`*fence.LeaseLostError` around a `*fence.UnavailableError`, `no answer`": &fence.LeaseLostError{
		Err: &fence.UnavailableError{Reason: fence.Unreachable, Err: io.EOF}},
	"`*postgres.NotReadyError`, `schema is not up to date`":             &postgres.NotReadyError{Reason: postgres.NotMigrated},
	"`*postgres.NotReadyError`, `server is not supported`":              &postgres.NotReadyError{Reason: postgres.Unsupported},
	"`*postgres.NotReadyError`, `rights are missing`":                   &postgres.NotReadyError{Reason: postgres.MissingRights},
	"`*postgres.NotReadyError`, `fence is behind its history`":          &postgres.NotReadyError{Reason: postgres.FenceBehind},
	"`*postgres.NotReadyError`, `the server's clock jumped`":            &postgres.NotReadyError{Reason: postgres.ClockJumped},
	"`*postgres.NotReadyError`, `entries are missing from the history`": &postgres.NotReadyError{Reason: postgres.HistoryGap},
	"`*postgres.NotReadyError`, `database is another shard`":            &postgres.NotReadyError{Reason: postgres.OtherShard},
	"`*postgres.TransientError` around a `*postgres.NotReadyError`, `server is not supported`": &postgres.TransientError{
		Err: &postgres.NotReadyError{Reason: postgres.Unsupported}},
}

// errors.Is and SafeToRetry answer what docs/errors.md says, for each sentinel, each typed
// error and each reason, bare and wrapped.
func TestErrors_MatchWhatTheDocumentationSays(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/errors.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "## What `errors.Is` and `SafeToRetry` say")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| (.+?) \| (.+?) \| (yes|no) \|$`).FindAllStringSubmatch(table, -1)
	documented := map[string]bool{}
	matched := map[string]bool{}
	for _, row := range rows {
		documented[row[1]] = true
		err := matching[row[1]]
		if err == nil {
			t.Errorf("the test has no error for %s", row[1])
			continue
		}
		for _, err := range []error{err, fmt.Errorf("selling: %w", err), errors.Join(io.ErrUnexpectedEOF, err)} {
			var is []string
			for name, sentinel := range sentinels {
				if errors.Is(err, sentinel) {
					is = append(is, "`"+name+"`")
					matched[name] = true
				}
			}
			slices.Sort(is)
			require.Equal(t, row[2], strings.Join(append(is, map[bool][]string{true: {"none"}}[len(is) == 0]...), ", "), row[1])
			require.Equal(t, row[3] == "yes", guard.SafeToRetry(err), row[1])
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(matching)), slices.Sorted(maps.Keys(documented)))
	require.Equal(t, slices.Sorted(maps.Keys(sentinels)), slices.Sorted(maps.Keys(matched)), "each sentinel has a row")
	requireEachReasonHasARow(t, table)
}

// requireEachReasonHasARow requires rows for all constants of the types of reasons, and for
// all sentinels and typed errors, so that a new one has to be decided upon.
func requireEachReasonHasARow(t *testing.T, table string) {
	t.Helper()
	s := said{names: map[string]bool{}, texts: map[string]string{}}
	for _, dir := range []string{"fence", "guard", "storage/postgres"} {
		s.read(t, dir)
	}
	for name := range s.names {
		bare := strings.TrimPrefix(name, "*")
		shared := sentinels[bare] == nil && strings.HasPrefix(bare, "guard.") && sentinels["fence."+strings.TrimPrefix(bare, "guard.")] != nil
		require.True(t, shared || strings.Contains(table, "`"+name+"`"), name)
	}
	s.reasons = map[string]string{}
	for _, dir := range []string{"storage", "fence", "storage/postgres/internal/wire"} {
		s.read(t, dir)
	}
	require.Len(t, s.reasons, 8+6+5+7)
	for reason, typ := range s.reasons {
		require.True(t, typ == "LossReason" || strings.Contains(table, ", `"+reason+"`"), reason)
	}
}
