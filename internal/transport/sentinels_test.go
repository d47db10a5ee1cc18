package transport_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/transport"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// sentinels has every sentinel that a call of guard can return, with the problem that it is by
// itself.
var sentinels = map[string]struct {
	err  error
	want *transport.Problem
}{
	"fence.ErrLocked":            {fence.ErrLocked, transport.Unavailable},
	"fence.ErrLeaseLost":         {fence.ErrLeaseLost, transport.Unavailable},
	"fence.ErrReleased":          {fence.ErrReleased, transport.Internal}, // a lease, or a Hold's Runner, used after its end
	"fence.ErrUnavailable":       {fence.ErrUnavailable, transport.Unavailable},
	"fence.ErrNoLeader":          {fence.ErrNoLeader, transport.Unavailable},
	"fence.ErrClosed":            {fence.ErrClosed, transport.Stopping},
	"fence.ErrInvalid":           {fence.ErrInvalid, transport.Internal},       // the service's own mistake: a client's is an InvalidGrantError
	"guard.ErrStaleToken":        {guard.ErrStaleToken, transport.Unavailable}, // one that didn't travel
	"guard.ErrOvertaken":         {guard.ErrOvertaken, transport.Unavailable},
	"guard.ErrWrongLockService":  {guard.ErrWrongLockService, transport.Unavailable},
	"guard.ErrFailedOver":        {guard.ErrFailedOver, transport.Unavailable},
	"guard.ErrUnknownOutcome":    {guard.ErrUnknownOutcome, transport.UnknownOutcome},
	"guard.ErrTxEnded":           {guard.ErrTxEnded, transport.Internal}, // what its COMMIT wrote stays
	"guard.ErrKeyReused":         {guard.ErrKeyReused, transport.KeyReused},
	"guard.ErrStoreUnavailable":  {guard.ErrStoreUnavailable, transport.Unavailable},
	"guard.ErrClosed":            {guard.ErrClosed, transport.Stopping},
	"guard.ErrInvalid":           {guard.ErrInvalid, transport.Internal},
	"postgres.ErrNotReady":       {postgres.ErrNotReady, transport.Internal},
	"postgres.ErrPruned":         {postgres.ErrPruned, transport.Internal},
	"context.DeadlineExceeded":   {context.DeadlineExceeded, transport.Unavailable},
	"context.Canceled":           {context.Canceled, transport.Unavailable},
	"an error of the function's": {errors.New("what?"), transport.Internal},
}

// reasons has the reason of each rejection, with the problem that the rejection of a grant
// that travelled is; that of any other is Unavailable.
var reasons = map[storage.Reason]*transport.Problem{
	storage.ReasonStale:          transport.StaleGrant,
	storage.ReasonOvertaken:      transport.Unavailable, // the grant is still good
	storage.ReasonCollision:      transport.RejectedGrant,
	storage.ReasonEpochBehind:    transport.RejectedGrant,
	storage.ReasonWentBack:       transport.RejectedGrant,
	storage.ReasonFailedOver:     transport.RejectedGrant,
	storage.ReasonTokenJump:      transport.RejectedGrant,
	storage.ReasonTokensWentBack: transport.RejectedGrant,
}

// A new sentinel fails this test until it is decided what it is to a client.
func TestOf_KnowsEverySentinel(t *testing.T) {
	t.Parallel()
	declared := map[string]bool{}
	for pkg, dir := range map[string]string{"fence": "../../fence", "guard": "../../guard", "postgres": "../../storage/postgres"} {
		for _, name := range declarations(t, dir, "Err") {
			declared[pkg+"."+name] = true
		}
	}
	for name, c := range sentinels {
		require.Same(t, c.want, transport.Of(c.err), name)
		require.Same(t, c.want, transport.Of(fmt.Errorf("around it: %w", c.err)), name)
		if strings.Contains(name, ".Err") {
			require.True(t, declared[name], "%s is not there", name)
			delete(declared, name)
		}
	}
	require.Empty(t, slices.Sorted(maps.Keys(declared)), "decide what these are to a client")
}

func TestOf_KnowsEveryReason(t *testing.T) {
	t.Parallel()
	require.Len(t, reasons, len(declarations(t, "../../storage", "Reason"))-1, "one for each constant; Reason itself is the type")
	for reason, want := range reasons {
		rejected := &guard.RejectedError{Reason: reason, Grant: grant(1), Current: grant(2)}
		require.Same(t, transport.Unavailable, transport.Of(rejected), reason)
		rejected.Travelled = true
		require.Same(t, want, transport.Of(fmt.Errorf("around it: %w", rejected)), reason)
	}
}

// declarations returns what the package in dir declares at its top with a name that begins with
// prefix.
func declarations(t *testing.T, dir, prefix string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for name := range tree.Scope.Objects {
			if strings.HasPrefix(name, prefix) && ast.IsExported(name) {
				names = append(names, name)
			}
		}
	}
	require.NotEmpty(t, names)
	return names
}
