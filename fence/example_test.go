package fence_test

import (
	"fmt"

	"github.com/fencekit/fencekit/fence"
)

// A grant travels as one header value, so its parts can't be mixed up.
func ExampleParseGrant() {
	g := fence.Grant{Resource: "sku/42", Epoch: 1, Token: 118, Holder: "worker-b-9f"}
	fmt.Println(g)

	back, err := fence.ParseGrant("fence1:1:118:worker-b-9f:sku%2F42")
	fmt.Println(back == g, err)

	_, err = fence.ParseGrant("fence1:1:0:worker-b-9f:sku%2F42")
	fmt.Println(err)
	// Output:
	// fence1:1:118:worker-b-9f:sku%2F42
	// true <nil>
	// fence: invalid grant: token 0 is not between 1 and 4611686018427387903
}
