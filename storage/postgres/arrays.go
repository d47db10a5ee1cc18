package postgres

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// array returns the text form of an SQL array whose elements need no quotes: integers, and
// text in hexadecimal. An empty element is quoted, or it would be malformed.
func array[T any](all []T, element func(T) string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, v := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		if s := element(v); s != "" {
			b.WriteString(s)
		} else {
			b.WriteString(`""`)
		}
	}
	b.WriteByte('}')
	return b.String()
}

func hexOf(s string) string { return hex.EncodeToString([]byte(s)) }

func integer[T ~int32 | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// grantArrays returns the arrays of epochs, tokens, and of names and holders in hexadecimal.
func grantArrays(grants []fence.Grant) (names, epochs, tokens, holders string) {
	return array(grants, func(g fence.Grant) string { return hexOf(g.Resource) }),
		array(grants, func(g fence.Grant) string { return integer(g.Epoch) }),
		array(grants, func(g fence.Grant) string { return integer(g.Token) }),
		array(grants, func(g fence.Grant) string { return hexOf(g.Holder) })
}

// claimArrays returns the arrays of the resources' numbers, epochs and tokens.
func claimArrays(claims []storage.Claim) (resources, epochs, tokens string) {
	return array(claims, func(c storage.Claim) string { return integer(c.Resource) }),
		array(claims, func(c storage.Claim) string { return integer(c.Grant.Epoch) }),
		array(claims, func(c storage.Claim) string { return integer(c.Grant.Token) })
}

func grantsOf(claims []storage.Claim) []fence.Grant {
	grants := make([]fence.Grant, len(claims))
	for i, c := range claims {
		grants[i] = c.Grant
	}
	return grants
}
