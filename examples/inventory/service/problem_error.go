package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

var (
	// errOutOfTime is why a deduction's context ends: its turn didn't come.
	errOutOfTime = errors.New("inventory: no turn in time")
	// errSlowDatabase is why a read's context ends.
	errSlowDatabase = errors.New("inventory: database did not answer in time")
)

// What can be away.
const (
	lockService = "etcd"
	database    = "postgres"
)

// problemOf says what an error is to a client. What it means for the request comes
// from the library's sentinels; details of our servers stay in our log.
//
// The order counts: an unknown outcome wraps the errors that led to it.
func problemOf(err error) *problem {
	var known *problem
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, guard.ErrUnknownOutcome):
		return later("unknown-outcome", "It is not known whether the stock was deducted",
			"The database was lost during COMMIT. Send the same request with the same key: it takes effect once.", database)
	case errors.Is(err, guard.ErrKeyReused):
		return newProblem(http.StatusUnprocessableEntity, "key-reused", "The key was used for another request",
			"A key belongs to one request on one product. Use a new key for a new deduction.")
	case errors.Is(err, guard.ErrClosed):
		return later("stopping", "This server is stopping", "Send the same request again, to another server.")
	}
	if p := refusalProblem(err); p != nil {
		return p
	}
	return unavailableProblem(err)
}

// refusalProblem is what a refusal of a grant that this server got is to a client;
// nil if err is none.
func refusalProblem(err error) *problem {
	var refused *guard.RejectedError
	if !errors.As(err, &refused) {
		return nil
	}
	switch refused.Reason {
	case storage.ReasonTokensWentBack:
		return wentBack()
	case storage.ReasonStale:
		return refusedGrant(refused)
	case storage.ReasonOvertaken:
		return undone("busy", "Others use the same grant", "")
	case storage.ReasonCollision, storage.ReasonEpochBehind, storage.ReasonTokenJump:
		return undone("lock-service-back", "The lock service is not the one that the database knows", "An operator has to raise its epoch.", lockService)
	}
	return undone("dependency-away", "The database went back to an older state, or failed over", "", database)
}

// ofClientsGrant makes a problem of the client's of a refusal of the grant that it
// sent.
func ofClientsGrant(err error) error {
	var refused *guard.RejectedError
	if errors.Is(err, guard.ErrUnknownOutcome) || !errors.As(err, &refused) || refused.Reason == storage.ReasonOvertaken {
		return err
	}
	return refusedGrant(refused)
}

func refusedGrant(refused *guard.RejectedError) *problem {
	facts := &refusalFacts{
		Resource: refused.Grant.Resource, Reason: string(refused.Reason), Token: refused.Grant.Token.String(),
		CurrentToken: refused.Current.Token.String(), Holder: refused.Current.Holder,
	}
	if !refused.Since.IsZero() {
		facts.Since = &refused.Since
	}
	p := newProblem(http.StatusConflict, "refused-grant", "The grant was refused",
		fmt.Sprintf("The fence refused token %s: %s. Nothing was deducted by this attempt.", facts.Token, refused.Reason))
	if refused.Reason == storage.ReasonStale {
		p = newProblem(http.StatusConflict, "stale-grant", "The grant is stale",
			fmt.Sprintf("Token %s was superseded by %s. This attempt deducted nothing; an earlier one, whose answer was lost, may have. "+
				"Acquire anew, read anew, and if the deduction is still wanted send the same key with the new grant.", facts.Token, facts.CurrentToken))
	}
	p.refusalFacts = facts
	return p
}

// unavailableProblem is what an error of our servers is to a client.
func unavailableProblem(err error) *problem {
	switch {
	case errors.Is(err, fence.ErrUnavailable) && !errors.Is(err, fence.ErrLeaseLost):
		return lockServiceProblem(err)
	case databaseAway(err):
		return undone("dependency-away", "The database can't be reached", "", database)
	case errors.Is(err, errOutOfTime), errors.Is(err, context.DeadlineExceeded), errors.Is(err, fence.ErrLeaseLost), errors.Is(err, context.Canceled):
		return undone("busy", "The product was busy for too long", "")
	}
	return plainProblem(http.StatusInternalServerError, "The error was logged.")
}

// within bounds a read of the database.
func within(ctx context.Context, limit time.Duration, read func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSlowDatabase)
	defer cancel()
	err := read(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}
