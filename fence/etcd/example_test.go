package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

// connect returns a client of an etcd, and what stops both.
func connect(ctx context.Context) (client *clientv3.Client, stop func()) {
	server, err := etcdserver.Start(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	client, err = server.Client(ctx)
	if err != nil {
		log.Fatal(err)
	}
	return client, func() {
		_ = client.Close()
		_ = server.Stop(ctx)
	}
}

func Example() {
	ctx := context.Background()
	client, stop := connect(ctx)
	defer stop()

	locker, err := etcd.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)

	first, err := locker.Acquire(ctx, "sku/42")
	if err != nil {
		log.Fatal(err)
	}
	_, err = locker.TryAcquire(ctx, "sku/42")
	fmt.Println("taken:", errors.Is(err, fence.ErrLocked))

	err = first.Release(ctx)
	fmt.Println("released:", err == nil, context.Cause(first.Context()))

	second, err := locker.Acquire(ctx, "sku/42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("token is higher:", second.Grant().Token > first.Grant().Token)
	// Output:
	// taken: true
	// released: true fence: lease released
	// token is higher: true
}
