package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
)

type exportFile struct {
	in *bufio.Reader
	of string
	at record.Time
}

func (f exportFile) time() time.Time {
	if f.of == "" {
		return time.Time{}
	}
	return f.at.Time()
}

func sortedByTime(exports []io.Reader) []exportFile {
	var files []exportFile
	for _, r := range exports {
		f := exportFile{in: bufio.NewReaderSize(r, beginSize)}
		first, _ := f.in.Peek(beginSize) // an error comes again when it is read
		if l, err := record.NewReader(bytes.NewReader(first)).Next(); err == nil && l.Begin != nil {
			f.of, f.at = l.Begin.Of, l.Begin.At
		}
		files = append(files, f)
	}
	slices.SortStableFunc(files, func(a, b exportFile) int { return cmp.Compare(a.at, b.at) })
	return files
}

// beginSize is how long a first line may be, which has a pattern of names.
const beginSize = 1 << 16

type exportVerifier struct {
	run    *verification
	in     *record.Reader
	newest bool
	prunes bool     // the file has exports of prunes
	bad    *Finding // a line that can't be read, which may be the last that was written
	now    *section // nil between two exports
}

func (x *exportVerifier) file(ctx context.Context) error {
	for {
		l, err := x.in.Next()
		switch {
		case errors.Is(err, io.EOF):
			x.interrupted()
			if !x.prunes {
				x.reportBad()
			}
			return nil
		case errors.Is(err, record.ErrLine): // it may be the last one of a prune that was interrupted
			x.reportBad()
			x.bad = x.finding("isn't as an export writes it: it was changed, or damaged.", err.Error())
			if x.now != nil && !x.now.ofPrune() {
				x.reportBad()
			}
		case err != nil:
			return err
		default:
			if err := x.line(l); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

func (x *exportVerifier) finding(text, found string) *Finding {
	return &Finding{Kind: FindingDamagedExport, Text: fmt.Sprintf("Line %d of an export %s", x.in.Number(), text), Found: found}
}

func (x *exportVerifier) reportBad() {
	if x.bad != nil {
		x.run.add(*x.bad)
		x.bad = nil
	}
}

// interrupted ends an export without its last line. A prune may have been interrupted: what it
// had not exported wasn't deleted.
func (x *exportVerifier) interrupted() {
	if x.now == nil {
		return
	}
	if x.now.ofPrune() {
		x.bad = nil
		x.now.forgiveLast()
	} else {
		x.run.add(*x.finding("is the last, and isn't the end: the export was cut off.", ""))
	}
	x.now.close()
	x.now = nil
}

func (x *exportVerifier) line(l *record.Line) error {
	if l.Begin != nil {
		if x.interrupted(); l.Begin.Of == record.OfPrune {
			x.prunes, x.bad = true, nil
		}
		x.reportBad()
		if l.Begin.Format != record.Format {
			return fmt.Errorf("%w: line %d begins an export in format %q, want %q: verify it with the fencectl that wrote it", fence.ErrInvalid, x.in.Number(), l.Begin.Format, record.Format)
		}
		x.now = newSection(x.run, *l.Begin, x.newest)
		return nil
	}
	x.reportBad()
	if x.now == nil {
		x.run.add(*x.finding("belongs to no export: the first line is missing.", ""))
		x.now = newSection(x.run, record.Begin{Of: record.OfDatabase}, x.newest)
	}
	if l.End != nil {
		x.now.close()
		x.now = nil
		return nil
	}
	if !x.now.line(l) {
		x.run.add(*x.finding("isn't as an export writes it: it says nothing, or what was said before.", ""))
	}
	return nil
}
