package anchor

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/mod/sumdb/note"

	"github.com/fencekit/fencekit/fence"
)

// NewKey generates an Ed25519 key pair for a log, in the text form of signed-note. name becomes
// the log's origin and has to be unique, ideally a URL without its scheme, such as
// example.com/shop/2027. NewKey fails with fence.ErrInvalid if name is empty or contains spaces,
// control characters or plus signs.
func NewKey(name string) (private, public string, err error) {
	private, public, err = note.GenerateKey(rand.Reader, name)
	if err != nil {
		return "", "", err
	}
	if _, err := note.NewVerifier(public); err != nil || strings.ContainsFunc(name, unicode.IsControl) {
		return "", "", fmt.Errorf("%w: %q can't be the name of a key: want one word without a plus sign, such as example.com/shop/2027", fence.ErrInvalid, name)
	}
	return private, public, nil
}

// Signer is the private key of a log. It is immutable.
type Signer struct {
	note.Signer
	public note.Verifier
}

// Public returns the public key.
func (s *Signer) Public() note.Verifier { return s.public }

// ParseSigner reads a private key that NewKey made. It fails with fence.ErrInvalid if text is not
// a private key; the error doesn't contain text.
func ParseSigner(text string) (*Signer, error) {
	text = strings.TrimSpace(text)
	signer, err := note.NewSigner(text)
	if err != nil {
		return nil, fmt.Errorf("%w: this is not the private key of a log", fence.ErrInvalid)
	}
	// note.NewSigner accepts only PRIVATE+KEY+name+id+base64(algorithm number, seed).
	key, err := base64.StdEncoding.DecodeString(strings.SplitN(text, "+", 5)[4])
	if err != nil {
		return nil, err
	}
	public, err := note.NewEd25519VerifierKey(signer.Name(), ed25519.NewKeyFromSeed(key[1:]).Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	verifier, err := note.NewVerifier(public)
	return &Signer{signer, verifier}, err
}

// ParsePublicKey reads a public key that NewKey made. It fails with fence.ErrInvalid if text is
// not a public key.
func ParsePublicKey(text string) (note.Verifier, error) {
	key, err := note.NewVerifier(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("%w: this is not the public key of a log", fence.ErrInvalid)
	}
	return key, nil
}
