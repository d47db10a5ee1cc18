package transport

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/fence"
)

const (
	// separator is between a grant and its signature. The text form of a grant escapes it.
	separator = ";"
	// minKey is how many bytes a key has at least: an empty one would accept everybody.
	minKey = 16
)

// SignatureError says that a grant was not signed, or with none of the receiver's keys. It is
// fence.ErrInvalid.
type SignatureError struct{ Grant fence.Grant }

func (e *SignatureError) Error() string {
	return fmt.Sprintf("fence: the grant of %s is not signed with a key of this receiver", e.Grant.Resource)
}

// Is reports whether target is fence.ErrInvalid.
func (e *SignatureError) Is(target error) bool { return target == fence.ErrInvalid }

// SignGrants returns the values of a header with grants and their signatures.
func SignGrants(key []byte, grants []fence.Grant) ([]string, error) {
	if err := checkKeys([][]byte{key}); err != nil {
		return nil, err
	}
	values := make([]string, len(grants))
	for i, g := range grants {
		values[i] = g.String() + separator + base64.RawURLEncoding.EncodeToString(signature(key, g))
	}
	return values, nil
}

// ParseSignedGrants is ParseGrants for grants of which each is signed with one of keys.
func ParseSignedGrants(values []string, keys [][]byte) ([]fence.Grant, error) {
	if err := checkKeys(keys); err != nil {
		return nil, err
	}
	return parse(values, func(text string) (fence.Grant, error) {
		text, signed, _ := strings.Cut(text, separator)
		g, err := fence.ParseGrant(text)
		if err != nil {
			return fence.Grant{}, err
		}
		sum, err := base64.RawURLEncoding.Strict().DecodeString(signed)
		if err != nil || !slices.ContainsFunc(keys, func(key []byte) bool { return hmac.Equal(sum, signature(key, g)) }) {
			return fence.Grant{}, &SignatureError{g}
		}
		return g, nil
	})
}

func checkKeys(keys [][]byte) error {
	if len(keys) == 0 {
		return fmt.Errorf("%w: no key to verify grants with", fence.ErrInvalid)
	}
	for _, key := range keys {
		if len(key) < minKey {
			return fmt.Errorf("%w: a key for grants has %d bytes, want at least %d", fence.ErrInvalid, len(key), minKey)
		}
	}
	return nil
}

// signature covers all of g. Lengths keep one part from running into the next.
func signature(key []byte, g fence.Grant) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range []string{"fencekit grant", g.Resource, fmt.Sprint(g.Epoch), g.Token.String(), g.Holder} {
		mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		mac.Write([]byte(part))
	}
	return mac.Sum(nil)
}
