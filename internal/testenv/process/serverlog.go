package process

import (
	"io"
	"os"
)

// teeLog returns a file to be a child's output: what is written to it goes to
// both writers, until the child and all its descendants have closed it.
func teeLog(file string, extra io.Writer) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	go func() {
		defer r.Close()
		defer log.Close()
		_, _ = io.Copy(io.MultiWriter(log, extra), r)
	}()
	return w, nil
}

// openLog opens a file to be a child's output.
func openLog(file string, extra io.Writer) (*os.File, error) {
	if extra != nil {
		return teeLog(file, extra)
	}
	return os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// TailOf returns the last bytes of a file, for an error message.
func TailOf(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-logTail):])
}
