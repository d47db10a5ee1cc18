package demo

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// Run plays the schedule with and without the fence, on a real etcd and a real
// Postgres, and prints the story with a verdict. It fails if the fence let
// something through, and also if its control did not oversell: then the schedule
// showed nothing.
func Run(ctx context.Context, out io.Writer) (err error) {
	fmt.Fprintf(out, "Fencekit: three worker processes sell %d units of %q; one is stopped between its read and its write.\n\n", service.OnHand(), service.SKU)
	etcd, err := etcdserver.Start(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(etcd)) }()
	pg, err := pgserver.Start(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(pg)) }()

	s := &story{out: out}
	fmt.Fprintf(out, "\n1. With the fence: guard.Do\n")
	fenced, err := (&act{fenced: true, etcd: etcd, postgres: pg, story: s}).play(ctx)
	if err != nil {
		return err
	}
	printResult(out, fenced)
	fmt.Fprintf(out, "\n2. The control: the same allocation and the same etcd lock, without claim and seal\n")
	control, err := (&act{fenced: false, etcd: etcd, postgres: pg, story: s}).play(ctx)
	if err != nil {
		return err
	}
	printResult(out, control)
	return verdict(out, fenced, control)
}

func printResult(out io.Writer, r result) {
	fmt.Fprintf(out, "  => on hand %d, sold %d, oversold %d", r.stock.OnHand, r.stock.Reserved, r.stock.Oversold())
	for _, rejection := range r.rejections {
		fmt.Fprintf(out, "; recorded rejection: token %d (%s) by token %d (%s), %dx",
			rejection.Grant.Token, label(rejection.Grant.Holder), rejection.Current.Token, label(rejection.Current.Holder), rejection.Count)
	}
	fmt.Fprintln(out)
}

// Verdicts that are not "shown".
var (
	ErrViolated     = errors.New("the fence let an oversell through")
	ErrInconclusive = errors.New("the schedule showed nothing")
)

func verdict(out io.Writer, fenced, control result) error {
	switch {
	case fenced.stock.Oversold() > 0:
		return ErrViolated
	case fenced.stock.Reserved != fenced.stock.OnHand:
		return fmt.Errorf("%w: with the fence %d of %d units were sold", ErrInconclusive, fenced.stock.Reserved, fenced.stock.OnHand)
	case len(fenced.rejections) == 0:
		return fmt.Errorf("%w: no worker was rejected", ErrInconclusive)
	case control.stock.Oversold() == 0:
		return fmt.Errorf("%w: the control did not oversell", ErrInconclusive)
	}
	fmt.Fprintf(out, "\nShown: after the same pause, the fence rejected the late write and sold exactly %d; the lock alone oversold by %d.\n",
		fenced.stock.Reserved, control.stock.Oversold())
	return nil
}
