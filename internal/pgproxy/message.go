package pgproxy

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Message types, as in the first byte of a message.
const (
	// From the client.
	typeQuery        = 'Q'
	typeParse        = 'P'
	typeBind         = 'B'
	typeExecute      = 'E'
	typeSync         = 'S'
	typeFunctionCall = 'F'
	// From the server.
	typeCommandComplete = 'C'
	typeErrorResponse   = 'E'
	typeNoticeResponse  = 'N'
	typeReadyForQuery   = 'Z'
)

const (
	headerLen = 5 // type and length
	// maxMessage is Postgres's own limit of a message, in bytes.
	maxMessage = 1 << 30
)

// message is one message as it is on the wire, header included.
type message []byte

func (m message) kind() byte   { return m[0] }
func (m message) body() []byte { return m[headerLen:] }

// awaitsReady reports whether the server ends its answer to this client
// message with ReadyForQuery.
func (m message) awaitsReady() bool {
	return m.kind() == typeQuery || m.kind() == typeSync || m.kind() == typeFunctionCall
}

// readMessage reads a message that has a type.
func readMessage(r io.Reader) (message, error) {
	header := make([]byte, headerLen)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	return readBody(r, header, 1)
}

// readStartup reads a message without a type, as a connection begins with.
func readStartup(r io.Reader) (message, error) {
	header := make([]byte, 8) // length and protocol version or request code
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	return readBody(r, header, 0)
}

// readBody reads what follows the header. The length at lengthAt counts itself
// and all that follows.
func readBody(r io.Reader, header []byte, lengthAt int) (message, error) {
	total := int64(lengthAt) + int64(binary.BigEndian.Uint32(header[lengthAt:]))
	if total < int64(len(header)) || total > maxMessage {
		return nil, fmt.Errorf("pgproxy: message of %d bytes", total)
	}
	m := make(message, total)
	copy(m, header)
	_, err := io.ReadFull(r, m[len(header):])
	return m, err
}
