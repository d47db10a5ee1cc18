package postgres

import (
	"encoding/hex"
	"strconv"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// appendArray appends the text form of an SQL array whose elements need no quotes: integers,
// and text in hexadecimal. An empty element is quoted, or it would be malformed.
func appendArray[T any](b []byte, all []T, element func([]byte, T) []byte) []byte {
	b = append(b, '{')
	for i, v := range all {
		if i > 0 {
			b = append(b, ',')
		}
		before := len(b)
		if b = element(b, v); len(b) == before {
			b = append(b, `""`...)
		}
	}
	return append(b, '}')
}

func array[T any](all []T, element func([]byte, T) []byte) string {
	return string(appendArray(nil, all, element))
}

func appendHex(b []byte, s string) []byte { return hex.AppendEncode(b, []byte(s)) }

func appendInteger[T ~int32 | ~int64](b []byte, n T) []byte {
	return strconv.AppendInt(b, int64(n), 10)
}

// grantArrays returns the arrays of epochs, tokens, and of names and holders in hexadecimal.
func grantArrays(grants []fence.Grant) (names, epochs, tokens, holders string) {
	return array(grants, func(b []byte, g fence.Grant) []byte { return appendHex(b, g.Resource) }),
		array(grants, func(b []byte, g fence.Grant) []byte { return appendInteger(b, g.Epoch) }),
		array(grants, func(b []byte, g fence.Grant) []byte { return appendInteger(b, g.Token) }),
		array(grants, func(b []byte, g fence.Grant) []byte { return appendHex(b, g.Holder) })
}

// claimArrays returns the arrays of the resources' numbers, epochs and tokens.
func claimArrays(claims []storage.Claim) (resources, epochs, tokens []byte) {
	b := appendArray(make([]byte, 0, 64), claims, func(b []byte, c storage.Claim) []byte { return appendInteger(b, c.Resource) })
	second := len(b)
	b = appendArray(b, claims, func(b []byte, c storage.Claim) []byte { return appendInteger(b, c.Grant.Epoch) })
	third := len(b)
	b = appendArray(b, claims, func(b []byte, c storage.Claim) []byte { return appendInteger(b, c.Grant.Token) })
	return b[:second], b[second:third], b[third:]
}

func grantsOf(claims []storage.Claim) []fence.Grant {
	grants := make([]fence.Grant, len(claims))
	for i, c := range claims {
		grants[i] = c.Grant
	}
	return grants
}
