package record

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
)

// Format is what the first line of an export says. A change that older readers can't read
// changes it.
const Format = "fencekit history 1"

// What an export is of.
const (
	OfDatabase = "database" // all that there was at one moment
	OfPrune    = "prune"    // what was then deleted
)

// Line is a line of an export: exactly one of its fields is set. An export is
//
//	begin, setting, then for some resources at a time: resource..., rejection..., operation..., entry...,
//	then what belongs to no resource, and end.
//
// The export of a prune has begin, and for each resource: resource, entry...; and end. Several may
// follow each other in one file. One that was interrupted lacks its end, and the end of its last
// line; what it has may not have been deleted, and then is in a later one too.
type Line struct {
	Begin     *Begin     `json:"begin,omitempty"`
	Setting   *Setting   `json:"setting,omitempty"`
	Resource  *Resource  `json:"resource,omitempty"`
	Rejection *Rejection `json:"rejection,omitempty"`
	Operation *Operation `json:"operation,omitempty"`
	Entry     *Entry     `json:"entry,omitempty"`
	Hold      *Hold      `json:"hold,omitempty"` // of a resource without a fence
	End       *End       `json:"end,omitempty"`
}

// Begin says what an export is of.
type Begin struct {
	Format    string `json:"format"`
	Of        string `json:"of"`
	At        Time   `json:"at"`
	Resources string `json:"resources,omitempty"` // the pattern of their names; "" for all
}

// Resource is a resource whose entries follow.
type Resource struct {
	Number     int32       `json:"number"`
	Name       string      `json:"name,omitempty"` // "" if it has no fence
	Fence      *Fence      `json:"fence,omitempty"`
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	Hold       *Hold       `json:"hold,omitempty"`
	To         int64       `json:"to,omitempty"` // the last position, in the export of a prune
}

// End says what came before it, so that nothing is lost unnoticed.
type End struct {
	Lines  int64 `json:"lines"`
	SHA256 Hash  `json:"sha256"` // of all lines from begin on, each with its newline
}

// Writer writes an export. It buffers.
type Writer struct {
	out   *bufio.Writer
	sum   hash.Hash
	lines int64
	json  *json.Encoder
	line  bytes.Buffer
}

// NewWriter writes the beginning of an export to w.
func NewWriter(w io.Writer, begin Begin) (*Writer, error) {
	out := &Writer{out: bufio.NewWriterSize(w, 1<<16), sum: sha256.New()}
	out.json = newEncoder(&out.line)
	begin.Format = Format
	return out, out.Write(&Line{Begin: &begin})
}

func newEncoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

// Write writes a line.
func (w *Writer) Write(l *Line) error {
	w.line.Reset()
	if err := w.json.Encode(l); err != nil {
		return err
	}
	w.lines++
	w.sum.Write(w.line.Bytes())
	_, err := w.out.Write(w.line.Bytes())
	return err
}

// Flush writes what is buffered.
func (w *Writer) Flush() error { return w.out.Flush() }

// End writes the end, and flushes.
func (w *Writer) End() error {
	if err := w.Write(&Line{End: &End{w.lines, w.sum.Sum(nil)}}); err != nil {
		return err
	}
	return w.Flush()
}

// ErrLine says that a line isn't one that a Writer has written.
var ErrLine = errors.New("not a line of an export")

// maxLine bounds the length of a line.
const maxLine = 1 << 28

// Reader reads exports.
type Reader struct {
	in     *bufio.Reader
	number int64
	sum    hash.Hash // of the lines before, from the last begin on
	lines  int64
	text   []byte
	again  bytes.Buffer
	json   *json.Encoder
}

// NewReader reads from r.
func NewReader(r io.Reader) *Reader {
	out := &Reader{in: bufio.NewReaderSize(r, 1<<16), sum: sha256.New()}
	out.json = newEncoder(&out.again)
	return out
}

// Number is the number of the last line, from 1 on.
func (r *Reader) Number() int64 { return r.number }

// Next returns the next line, and io.EOF after the last. It fails with ErrLine if the line
// isn't exactly as a Writer writes it; the next call goes on after it.
func (r *Reader) Next() (*Line, error) {
	if err := r.read(); err != nil {
		return nil, err
	}
	r.number++
	l, err := r.parse()
	if err == nil && l.Begin != nil {
		r.sum.Reset()
		r.lines = 0
	}
	if err == nil && l.End != nil && (l.End.Lines != r.lines || !bytes.Equal(l.End.SHA256, r.sum.Sum(nil))) {
		err = fmt.Errorf("%w: the end says that there were other lines before it", ErrLine)
	}
	r.lines++
	r.sum.Write(r.text)
	return l, err
}

func (r *Reader) read() error {
	r.text = r.text[:0]
	for {
		piece, err := r.in.ReadSlice('\n')
		r.text = append(r.text, piece...)
		switch {
		case err == nil, errors.Is(err, io.EOF) && len(r.text) > 0:
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		case len(r.text) > maxLine:
			return fmt.Errorf("%w: it is longer than %d bytes", ErrLine, maxLine)
		}
	}
}

// parse requires that the line is what it would be written as: a field that is unknown or
// doubled would mean something else to other readers.
func (r *Reader) parse() (*Line, error) {
	l := new(Line)
	if err := json.Unmarshal(r.text, l); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLine, err)
	}
	r.again.Reset()
	if err := r.json.Encode(l); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLine, err)
	}
	if !bytes.Equal(r.again.Bytes(), r.text) {
		return nil, fmt.Errorf("%w: it has other fields, or has them in another form", ErrLine)
	}
	return l, nil
}
