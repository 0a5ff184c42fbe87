"""Operations that own functions: loops, branches, regions, and rules that users give.

What they ask of derivatives and batching they are handed; no pass is imported here.
"""
