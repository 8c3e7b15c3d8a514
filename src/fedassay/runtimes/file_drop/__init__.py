"""File drop: sites without open ports exchange signed files through a folder (SFTP, a USB stick).

The coordinator (`coordinator`) holds a `FileDropStudy` and runs it on a `FileDropRuntime`; a site is a `Participant`.
"""
