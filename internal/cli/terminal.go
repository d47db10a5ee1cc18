package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// isColorTerminal reports whether w is a terminal that may get colors. That it is
// no dumb one is the table library's to see.
func isColorTerminal(w io.Writer) bool { return IsTerminal(w) && os.Getenv("NO_COLOR") == "" }

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// UsualWidth is how many columns help has room for if stdout is no terminal.
const UsualWidth = 80

// TerminalWidth is how many columns the terminal w has; 0 if w is none.
func TerminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}
