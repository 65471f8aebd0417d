"""The file formats that emulator and explorer share; documented in docs/formats.md. Start at `container`."""
