package anchor

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fencekit/fencekit/fence"
)

// Checkpoint is a signed statement of the first Size records of a log. It is immutable.
type Checkpoint struct {
	Origin string    // the name of the log's key
	Size   int64     // the number of records that it covers
	Root   tlog.Hash // the root hash of the Merkle tree over them
	Note   string    // the signed text, a tlog-checkpoint of C2SP
}

// ParseCheckpoint reads a checkpoint. It fails with ErrNotProven if key has not signed it. Signatures of other
// keys are ignored.
func ParseCheckpoint(text string, key note.Verifier) (*Checkpoint, error) {
	opened, err := note.Open([]byte(text), note.VerifierList(key))
	if err != nil {
		return nil, fmt.Errorf("%w: the checkpoint is not one that key %s+%08x signed: %w", ErrNotProven, key.Name(), key.KeyHash(), err)
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) < 4 {
		return nil, fmt.Errorf("%w: a checkpoint of %d lines, want 3", ErrNotProven, len(lines)-1)
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != lines[1] {
		return nil, fmt.Errorf("%w: a checkpoint of %q records", ErrNotProven, lines[1])
	}
	root, err := tlog.ParseHash(lines[2])
	if err != nil {
		return nil, fmt.Errorf("%w: the root of a checkpoint: %w", ErrNotProven, err)
	}
	if lines[0] != key.Name() {
		return nil, fmt.Errorf("%w: a checkpoint of log %s, signed as %s", ErrNotProven, lines[0], key.Name())
	}
	return &Checkpoint{lines[0], size, root, text}, nil
}

func (s *Signer) sign(t *tree) (*Checkpoint, error) {
	c := &Checkpoint{Origin: s.Name(), Size: t.size, Root: t.root()}
	text, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, c.Root)}, s)
	c.Note = string(text)
	return c, err
}

func (c *Checkpoint) matches(t *tree) error {
	if t.root() != c.Root {
		return fmt.Errorf("%w: the first %d records of the log are not those that the checkpoint was signed for", ErrNotProven, c.Size)
	}
	return nil
}

// NewKey generates an Ed25519 key pair for a log, in the text form of signed-note. name is the log's origin and
// has to be unique, ideally a URL without its scheme, such as example.com/shop/2027. NewKey fails with
// fence.ErrInvalid if name is empty or has spaces, control characters or plus signs.
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

// ParseSigner reads a private key of NewKey. It fails with fence.ErrInvalid, without the text, if it is none.
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

// ParsePublicKey reads a public key of NewKey. It fails with fence.ErrInvalid if text is none.
func ParsePublicKey(text string) (note.Verifier, error) {
	key, err := note.NewVerifier(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("%w: this is not the public key of a log", fence.ErrInvalid)
	}
	return key, nil
}
