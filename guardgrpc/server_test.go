package guardgrpc_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardgrpc"
	"github.com/fencekit/fencekit/storage/memory"
)

// shop is a service with a database of its own and no lock service.
type shop struct{ guard *guard.Guard[*memory.Tx] }

func (s shop) sell(ctx context.Context) (*emptypb.Empty, error) {
	grants, err := guardgrpc.Grants(ctx)
	if err == nil {
		err = guard.Do(ctx, s.guard.UnderGrant(grants...), resource, func(_ context.Context, tx *memory.Tx) error { return tx.Set("sold", "yes") })
	}
	if err != nil {
		return nil, guardgrpc.Error(ctx, err)
	}
	return new(emptypb.Empty), nil
}

// method is the name of sell.
const method = "/shop.Shop/Sell"

// description is what protoc would generate.
var description = grpc.ServiceDesc{ServiceName: "shop.Shop", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
	MethodName: "Sell",
	Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		if err := decode(new(emptypb.Empty)); err != nil {
			return nil, err
		}
		return srv.(shop).sell(ctx)
	},
}}}

// start serves a shop, and returns a connection to it, and what ends both.
func start() (conn *grpc.ClientConn, stop func(), err error) {
	g, err := guard.New(nil, memory.NewStore(), nil)
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	server := grpc.NewServer()
	server.RegisterService(&description, shop{g})
	go func() { _ = server.Serve(listener) }() // it ends with Stop
	conn, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		server.Stop()
		return nil, nil, err
	}
	return conn, func() {
		_ = conn.Close()
		server.Stop()
		_ = g.Close(context.Background())
	}, nil
}

// A client sends the grant that it holds the resource under.
func ExampleWithGrants() {
	conn, stop, err := start()
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	sell := func(grant fence.Grant) {
		ctx := guardgrpc.WithGrants(context.Background(), grant)
		err := conn.Invoke(ctx, method, new(emptypb.Empty), new(emptypb.Empty)) // as generated code does
		fmt.Println(status.Code(err))
	}
	sell(fence.Grant{Resource: resource, Epoch: 1, Token: 131, Holder: "worker-b"})
	sell(fence.Grant{Resource: resource, Epoch: 1, Token: 118, Holder: "worker-a"}) // late
	// Output:
	// OK
	// Aborted
}
